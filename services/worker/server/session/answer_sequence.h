// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/text/detokenizer.h"
#include "services/worker/text/response/response_parser.h"

namespace continuo::server {

// The rules that end a sequence, apart from the engine's own limits. The same for all sequences of
// a request.
struct StopRules {
  std::vector<std::string> strings;
  bool include_stop = false;      // the text of a stop string or id is part of the answer
  std::vector<int32_t> eos_ids;   // ascending; empty with ignore_eos
  std::vector<int32_t> stop_ids;  // the client's, ascending
  int min_tokens = 0;
  int max_tokens = 0;
  // A constraint says where an end may come, also before min_tokens.
  bool constrained = false;

  bool EndsSequence(int32_t token) const;
};

// Where a Delta tells what it has. Its readers take these in this order (continuo.v1.Delta), so
// that what follows out of order begins another Delta.
enum class DeltaPlace {
  kOpenCall,  // a first piece of a call without an id, which goes on with an earlier Delta's call
  kReasoning,
  kText,
  kCalls,
};
// The last place at which there is something; kOpenCall where there is nothing. `has_calls`: one
// with an id.
DeltaPlace LastPlace(bool has_reasoning, bool has_text, bool has_calls);
// Whether something of place `next` may be added where `last` is the last place.
bool MayFollow(DeltaPlace next, DeltaPlace last);

// Says how a request's answers are divided into thoughts, text and calls of tools. The same for all
// its sequences.
struct AnswerFormat {
  const text::ResponseTemplate* response_template = nullptr;  // null: answers are text
  bool calls = false;
  bool single_call = false;     // the answer ends behind its first whole call
  bool thoughts_first = false;  // behind the thoughts all is text
  text::ParameterTypes types;   // of the tools' parameters
  std::string prompt_end;       // what the chat template wrote behind the last content
  std::string request_id;       // ids of calls derive from it
};

// The id of call `number` of a sequence: nine letters and digits, which Mistral's templates ask for
// (exactness: reference-clock).
std::string CallId(std::string_view request_id, int index, int number);

// One of a request's sequences, as its reader sees it: tokens in, text and finish reason out, one
// token at a time. Its output is a function of the tokens alone (exactness: text-per-token,
// one-last-delta, parser-of-ids), so live tokens and the replayed ones of a continuation go through
// it alike. Not thread-safe; copyable.
class AnswerSequence {
 public:
  // Model, rules and format outlive the sequence, which is number `index` of its request. Without a
  // format the answer is text.
  AnswerSequence(const ServedModel* model, const StopRules* rules,
                 const AnswerFormat* format = nullptr, int index = 0);

  // What of an answer became deliverable, in its order.
  class Said {
   public:
    // As much as one Delta can tell.
    struct Part {
      std::string reasoning, text;
      std::vector<v1::ToolCall> tool_calls;  // pieces, as a Delta has them
      DeltaPlace last_place() const;
    };

    void AddReasoning(std::string_view bytes);
    void AddText(std::string_view bytes);
    void BeginCall(v1::ToolCall call);
    // Goes on with call `index`, which began last, perhaps in an earlier output.
    void AddArguments(uint32_t index, std::string_view bytes);
    void Append(const Said& other);

    const absl::InlinedVector<Part, 1>& parts() const { return parts_; }
    size_t num_bytes() const;  // about what they take in a message

   private:
    // The part that something of this place goes into.
    Part& For(DeltaPlace place);

    absl::InlinedVector<Part, 1> parts_;
  };
  // What the newest token, or the end, made deliverable.
  struct Output : Said {
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
    int matched_string = -1;        // index of the stop string that was met
    int32_t matched_token_id = -1;  // stop id that was met
    Said held;                      // with an end: what a sequence which goes on would hold back
  };

  // Takes the next token. With FINISH_REASON_STOP or TOOL_CALLS the sequence has ended; a sequence
  // that a limit ends is ended by End(). With `stops_active` false no rule ends it here. A first
  // call that is the only one ends it where it ends itself, before min_tokens, too.
  Output Push(int32_t token, bool stops_active = true);

  // Ends the sequence at a limit and returns the text that was held back.
  Output End(v1::FinishReason why);

  // Ends it without output: its finish reason was received before, after `tokens`.
  void MarkFinished(const std::vector<int32_t>& tokens);

  bool finished() const { return finished_; }
  int num_tokens() const { return num_tokens_; }
  // Tokens that came while a thought was open.
  int num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  Output Ended(v1::FinishReason why, int32_t last_token);
  void TakeFirst(const text::Detokenizer::Piece& piece, size_t size, Said* said);
  void TakeRest(const text::Detokenizer::Piece& piece, size_t begin, Said* said);
  void Take(std::string_view bytes, size_t begin,
            std::span<const text::Detokenizer::Special> specials, Said* said);
  void Tell(const text::ResponseEvents& events, Said* said);

  const ServedModel* model_;
  const StopRules* rules_;
  const AnswerFormat* format_;
  int index_;
  text::Detokenizer detokenizer_;
  std::optional<text::ResponseParser> parser_;
  int num_tokens_ = 0, num_reasoning_tokens_ = 0;
  int num_calls_ = 0;
  bool has_whole_call_ = false;
  bool has_only_call_ = false;  // the end of a single call was told; nothing is told after it
  bool finished_ = false;
};

// The wire's finish reason for the engine's.
v1::FinishReason ToProto(engine::FinishReason reason);

}  // namespace continuo::server
