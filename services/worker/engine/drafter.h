// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/sequence.h"

namespace continuo::engine {

// A sequence that may be given drafts, and how many at most.
struct DraftAsk {
  const Sequence* sequence = nullptr;
  int most = 0;
};

// What drafts cost besides the rows that check them.
struct DraftCost {
  absl::Duration each;   // draft
  absl::Duration first;  // once, before the next draft of this sequence
};

// Guesses how sequences go on, so that one step can draw several tokens of one (speculative
// decoding). Each draft is one more row; it counts only where the model draws the same token, so
// guesses cost time and change nothing else (exactness: exact-speculation). Used by the engine
// thread alone.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Replaces `drafts` by up to `most` ids of the vocabulary that may follow what `s` has; none
  // where there is no guess.
  virtual void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) = 0;

  // One that guesses for several sequences at once is told before which ones a step may ask for.
  virtual bool works_in_batches() const { return false; }
  virtual void Prepare(std::span<const DraftAsk>) {}
  // Of a draft of `s` where `num_sequences` are asked for.
  virtual DraftCost Cost(const Sequence&, int /*num_sequences*/) const { return {}; }
  // The sequence has ended.
  virtual void Forget(model::SequenceId) {}
};

// Prompt lookup: what followed the last time that the sequence's last tokens stood in its prompt or
// its answer, of all such places the one with the longest match, at most kLongest tokens, then the
// latest. It looks back over kWindow tokens, a few microseconds for each thousand of them.
// Source of the idea: A. Saxena, "Prompt Lookup Decoding", 2023; LLMA, arXiv:2304.04487.
class PromptLookup : public Drafter {
 public:
  static constexpr int kShortest = 2, kLongest = 8, kWindow = 16384;
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override;
};

}  // namespace continuo::engine
