// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/text/text_model.h"

namespace continuo::text {

// The library that compiles grammars, with its version. The same grammar allows the same ids where
// this and kTextVersion are equal, so both are parts of the worker's fingerprint.
inline constexpr std::string_view kGrammarLibrary = "llguidance 1.9.1";

// Tells what answers must match, from beginning to end, as a request writes it.
struct GrammarSource {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kChoice, kLark };

  Kind kind = Kind::kJsonObject;
  std::string text;                  // schema, regular expression or Lark; else empty
  std::vector<std::string> options;  // the literal answers of a choice
  // Lark whose rules this program made, of tools' schemas for instance: they are not hostile, so
  // their bounds are as wide as those of schemas.
  bool is_own_lark = false;
  // Own Lark that stands around it and has it as @text; empty: it stands alone. The source was
  // compiled alone before.
  std::string around = {};
};

class GrammarMatcher;

// A compiled grammar for the vocabulary of one model, which must outlive it. Immutable and
// thread-safe.
class Grammar {
 public:
  // InvalidArgument tells why the source is refused; a schema's keyword is named with its JSON
  // pointer. A source that needs more operations than the bounds allow is refused, too: these are
  // counted, no time is measured. FailedPrecondition: no grammar applies to this vocabulary.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const TextModel& model,
                                                                const GrammarSource& source);

  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // At the beginning of an answer.
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> NewMatcher() const;

 private:
  explicit Grammar(ContinuoGrammar* grammar) : grammar_(grammar) {}

  ContinuoGrammar* const grammar_;
};

// One answer on its way through a grammar. One thread at a time; shares nothing that changes with
// other matchers, and may outlive its Grammar, but not the TextModel.
//
// A matcher fails where a step needs more operations than the bounds allow, and where the grammar
// wants text that no token begins with. FillMask then clears nothing, Accept takes nothing, and the
// answer cannot end: its request ends with status(). A failure is part of the state, so Rollback
// takes it back.
class GrammarMatcher {
 public:
  ~GrammarMatcher();
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;

  // Returns a matcher in the same state. For tests and benches.
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> Clone() const;

  // Clears the bits of ids that must not come next (bit id % 32 of word id / 32); sets none. Ids
  // without a token and those of special tokens that the grammar does not name must not. It does
  // not know which ids end an answer.
  void FillMask(std::span<uint32_t> mask);
  // Goes on behind `id`. False for an id that FillMask clears, and after a failure; nothing has
  // changed then.
  bool Accept(int32_t id);
  // Takes the last `count` accepted ids back, and a failure since; there must have been so many.
  void Rollback(int count);
  // The answer may end here.
  bool CanEnd();
  // Only an end may come. May be so before the first id.
  bool MustEnd();
  // OK unless it failed: ResourceExhausted (too complex) or FailedPrecondition (no such token).
  absl::Status status() const;

 private:
  friend class Grammar;
  explicit GrammarMatcher(ContinuoMatcher* matcher) : matcher_(matcher) {}

  ContinuoMatcher* const matcher_;
};

}  // namespace continuo::text
