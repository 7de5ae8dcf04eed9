// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/engine/draft/drafter.h"

namespace continuo::engine {

// Proposes the tokens that followed the last time that the sequence's last tokens occurred in its
// prompt or answer. Of several such places it takes the one with the longest match, at most
// kLongest tokens, and among those the latest. It looks back over kWindow tokens, which takes a few
// microseconds for each thousand.
// Source of the idea: A. Saxena, "Prompt Lookup Decoding", 2023; LLMA, arXiv:2304.04487.
class PromptLookup : public Drafter {
 public:
  static constexpr int kShortest = 2, kLongest = 8, kWindow = 16384;
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override;
};

}  // namespace continuo::engine
