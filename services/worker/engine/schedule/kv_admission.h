// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "services/worker/engine/estimate/length_history.h"
#include "services/worker/engine/requests/sequence.h"

namespace continuo::engine {

// The tokens in the KV cache that one sequence takes now and will take later.
struct Footprint {
  int64_t tokens = 0;  // its own, not shared: the whole prompt, even if that is yet to be computed
  int64_t remaining = 0;  // expected number of tokens still to be generated
};

// Returns the most KV tokens that sequences will ever hold together. Each grows by one token a step
// until it has what is expected of it, and then gives back what is its own. At the end of the one
// with r remaining, those with at least r hold their tokens and r more each; the largest of these
// moments is the answer. `shared` tokens are held throughout. Sorts `footprints`.
int64_t PeakTokens(int64_t shared, std::vector<Footprint>& footprints);

// Decides whether one more sequence may have KV blocks, from whole prompts and from how long
// answers turn out to be. Not thread-safe.
class KvAdmission {
 public:
  KvAdmission(int num_blocks, int block_size, int expected_answer_tokens)
      : num_blocks_(num_blocks), block_size_(block_size), lengths_(expected_answer_tokens) {}

  // Returns whether `s` fits beside those of `running` for which `stays` holds, without the others,
  // in a pool of which `num_used` blocks are in use. Blocks that `s` already references count as
  // its own.
  bool Fits(const Sequence& s, std::span<Sequence* const> running, int num_used,
            absl::FunctionRef<bool(const Sequence&)> stays);

  // An answer has finished by itself.
  void Record(int answer_tokens) { lengths_.Record(answer_tokens); }

 private:
  void AddFootprint(const Sequence& s, int64_t shared_blocks, bool worst);
  // Adds `s` and, if it leads the prefill, the siblings that will share the prompt.
  void AddFootprints(const Sequence& s, int64_t shared_blocks, bool worst);
  int64_t ReservedBlocks(const Sequence& s) const;

  const int num_blocks_, block_size_;
  LengthHistory lengths_;
  std::vector<Footprint> footprints_;
};

}  // namespace continuo::engine
