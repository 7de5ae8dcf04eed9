// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/requests/sequence.h"

namespace continuo::engine {

// A sequence that may get drafts, and how many at most.
struct DraftAsk {
  const Sequence* sequence = nullptr;
  int most = 0;
};

// The rows of the last step in which it computed the tokens [begin, end) of a sequence, which still
// runs. No other sequence has their blocks.
struct ComputedRows {
  const Sequence* sequence = nullptr;
  int first_row = 0;
  int begin = 0, end = 0;
};

// Cost of drafts besides the tokens that verify them.
struct DraftCost {
  absl::Duration one;   // of the first draft of a step
  absl::Duration each;  // of every further one
  absl::Duration once;  // before the next draft of this sequence

  absl::Duration Of(int drafts) const {
    return drafts == 0 ? absl::ZeroDuration() : one + (drafts - 1) * each;
  }
};

// Guesses how sequences go on, so that one step can sample several tokens of a sequence
// (speculative decoding). Each draft is one more token to compute. It counts only if the model
// samples the same token, so drafts cost time and change nothing else (exactness:
// exact-speculation). Used by the engine thread alone.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Replaces `drafts` by up to `most` ids of the vocabulary that may follow the tokens of `s`; by
  // none if there is no guess.
  virtual void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) = 0;

  // Returns whether it guesses for several sequences at once. Then Prepare comes first, with all
  // sequences for which the step may call Propose.
  virtual bool works_in_batches() const { return false; }
  virtual void Prepare(std::span<const DraftAsk>) {}
  // Returns whether it guesses from what the target model computed in the last step. Then every
  // step is told with OnCommitted, no step overlaps another, and Prepare comes before each step,
  // even without asks; sequences that are asked for have blocks for the drafts.
  virtual bool reads_every_step() const { return false; }
  virtual void OnCommitted(std::span<const ComputedRows>) {}
  // Returns the predicted cost of drafts of `s` if `num_sequences` get drafts in the step.
  virtual DraftCost Cost(const Sequence& /*s*/, int /*num_sequences*/) const { return {}; }
  // Returns the error of the engine's own executor, where that has computed drafts: it is lost.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // The sequence has finished.
  virtual void Forget(model::SequenceId) {}
};

}  // namespace continuo::engine
