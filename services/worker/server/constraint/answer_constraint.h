// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/engine/types/token_constraint.h"
#include "services/worker/server/constraint/thought_marks.h"
#include "services/worker/text/grammar/grammar.h"

namespace continuo::server {

// Says whether thoughts stand before the text that a grammar describes.
enum class Thoughts : uint8_t {
  kNone,      // the answer begins with its first token
  kPossible,  // the model may open a thought before it
  kOpen,      // the prompt has opened one
};

// Holds one sequence's answer to a grammar, behind its thoughts. A thought is free, but it does not
// end the answer; white space between it and the answer is no part of either. Everything is a
// function of the accepted ids, so a continuation accepts the received ones (exactness:
// parser-of-ids). Not thread-safe.
//
// Tokens are matched as a whole: one that closes a thought and goes on with text is not allowed.
class AnswerConstraint final : public engine::TokenConstraint {
 public:
  // At most this many ids can be rolled back over the end of a thought.
  static constexpr size_t kMaxRollback = 256;
  // At most this many ids of white space stand between a thought and the answer.
  static constexpr int kMaxSpaces = 8;

  // `marks` may be null with kNone. `field` names the part of the request that the grammar is from.
  static absl::StatusOr<std::shared_ptr<AnswerConstraint>> Create(
      std::shared_ptr<const text::Grammar> grammar, std::shared_ptr<const ThoughtMarks> marks,
      Thoughts thoughts, std::string field);

  // Returns true always, since the answer must not end within a thought.
  bool Restricts() override { return true; }
  void FillMask(std::span<uint32_t> mask) override;
  bool CanEnd() override;
  bool MustEnd() override;
  bool Accept(int32_t id) override;
  void Rollback(int count) override;
  // INVALID_ARGUMENT names the field.
  absl::Status status() override { return failure_; }

 private:
  enum class Phase : uint8_t { kStart, kThought, kSpaces, kAnswer };
  struct State {
    Phase phase = Phase::kAnswer;
    int num_spaces = 0;  // kSpaces: ids that were white space
    // Holds in kStart all bytes so far, which may begin a thought; in kThought its last ones, which
    // may end it.
    std::string held;
    // Holds the ids that the matcher has taken, except in kAnswer. In kStart they begin both an
    // answer and a thought; if they are fewer than num_begun, the ids are no answer.
    std::vector<int32_t> matched;
    int num_begun = 0;
  };

  AnswerConstraint(std::shared_ptr<const text::Grammar> grammar,
                   std::shared_ptr<const ThoughtMarks> marks,
                   std::unique_ptr<text::GrammarMatcher> matcher, Thoughts thoughts,
                   std::string field);

  bool MayBeAnswer() const {
    return state_.phase != Phase::kStart ||
           state_.num_begun == static_cast<int>(state_.matched.size());
  }
  // Each returns whether the id may come, and changes the state if so.
  bool AcceptAtStart(int32_t id);
  bool AcceptInThought(std::string_view bytes);
  bool AcceptSpace(std::string_view bytes);
  // Gives the matcher one more id.
  bool Match(int32_t id);
  // Brings the matcher into the state after these ids.
  void Rematch(const std::vector<int32_t>& ids);
  // Takes over a failure of the matcher.
  void Note();

  const std::shared_ptr<const text::Grammar> grammar_;
  const std::shared_ptr<const ThoughtMarks> marks_;
  const std::string field_;
  std::unique_ptr<text::GrammarMatcher> matcher_;
  std::vector<int32_t> matched_;  // ids that the matcher has accepted
  State state_;
  size_t num_answered_ = 0;  // ids that were accepted in kAnswer
  // Holds the state before each id that was accepted outside kAnswer; at most kMaxRollback.
  std::deque<State> before_;
  absl::Status failure_;
  std::vector<uint32_t> allowed_;  // reused memory: a mask
};

}  // namespace continuo::server
