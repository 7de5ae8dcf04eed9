// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/text/calls/marked_text.h"
#include "services/worker/text/grammar/grammar.h"
#include "services/worker/text/response/response_formats.h"
#include "services/worker/text/text_model.h"

namespace continuo::text {

// A function that an answer may call.
struct CallTool {
  std::string name;
  std::string parameters;  // the JSON schema of its arguments; empty: any object
  bool strict = false;     // arguments obey the schema whether or not a call is required
};

struct CallGrammarOptions {
  enum class Choice {
    kAuto,      // text, calls, or both
    kRequired,  // calls, and nothing else
    kNamed,     // one call of the tool `name`
  };
  Choice choice = Choice::kRequired;
  std::string name;      // the tool of kNamed
  bool parallel = true;  // more than one call is possible
  // kAuto: what an answer without calls has to match. Lark is not written into the grammar, which
  // has it as @text: it has to be compiled around it (GrammarSource::around).
  std::optional<GrammarSource> text;
};

// A grammar, in llguidance's dialect of Lark, of answers that a ResponseParser of the format reads
// as whole calls of these tools, with arguments that are objects of their schemas, and as text
// (kAuto). Calls are spelt as the model's chat template spells them. A pure function; `tokens` are
// the special tokens of the vocabulary, of which no text is made.
//
// kAuto constrains the arguments of strict tools; those of others are any JSON object. Without
// additionalProperties a schema that lists properties allows no others.
//
// InvalidArgument names the tool and what of it cannot be: no tools, a name twice, a name or a
// keyword of its schema that the format has no way to write. kUnimplemented is the status of a
// format that has no such grammar; its message tells why. Two limits are those of the parser:
// arguments deeper than JsonScanner::kMaxDepth are no whole call, and a value that is no string of
// a tag is at most OpenCall::kMaxHeld bytes.
absl::StatusOr<std::string> CallGrammar(const ResponseFormat& format,
                                        std::span<const CallTool> tools,
                                        std::span<const SpecialToken> tokens,
                                        const CallGrammarOptions& options);

// Lark around a grammar of answers without calls (GrammarSource::around), for a format in which
// text has a header of its own; empty: text has none.
std::string TextFrame(const ResponseFormat& format, std::span<const SpecialToken> tokens);

// The text that every answer with calls of this format begins with, up to the first special token
// or the name. Text that Lark allows must not begin with it beside tools: it would be both.
std::string CallHead(const ResponseFormat& format, std::span<const SpecialToken> tokens);

// The special tokens of a model's vocabulary. `ends` are the ids that end an answer: no grammar has
// them, since the engine allows them where the answer may end.
std::vector<SpecialToken> SpecialTokensOf(const TextModel& model, std::span<const int32_t> ends);

}  // namespace continuo::text
