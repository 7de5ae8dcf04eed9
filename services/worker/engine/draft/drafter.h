// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/requests/sequence.h"

namespace continuo::engine {

// A sequence that may get drafts, and how many at most.
struct DraftAsk {
  const Sequence* sequence = nullptr;
  int most = 0;
};

// Cost of drafts besides the tokens that verify them.
struct DraftCost {
  absl::Duration each;   // of every draft
  absl::Duration first;  // once, before the next draft of this sequence
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
  // Returns the predicted cost of drafts of `s` if `num_sequences` get drafts in the step.
  virtual DraftCost Cost(const Sequence& /*s*/, int /*num_sequences*/) const { return {}; }
  // The sequence has finished.
  virtual void Forget(model::SequenceId) {}
};

}  // namespace continuo::engine
