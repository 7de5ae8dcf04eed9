// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "services/worker/engine/draft/drafter.h"
#include "tests/testing/fake_executor.h"

namespace continuo {

// Proposes the answer that a FakeExecutor will give, with a wrong token now and then.
class OracleDrafter : public engine::Drafter {
 public:
  // Each draft is right with `percent`.
  OracleDrafter(int vocab_size, int percent, uint32_t seed = 1)
      : vocab_size_(vocab_size), percent_(percent), rng_(seed) {}

  void Propose(const engine::Sequence& s, int most, std::vector<int32_t>& drafts) override {
    ++num_asked_;
    drafts.clear();
    engine::Request request = s.request->request;
    request.stop_ids.clear();  // it also guesses beyond the end
    request.min_tokens = 0;
    request.received.assign(request.num_sequences, {});
    request.received[s.index].tokens = s.answer;
    request.max_tokens = static_cast<int>(s.answer.size()) + most;
    const std::vector<int32_t> answer = FakeAnswer(request, s.index, vocab_size_);
    for (size_t i = s.answer.size(); i < answer.size(); ++i) {
      const bool right = std::uniform_int_distribution<int>(1, 100)(rng_) <= percent_;
      drafts.push_back(right ? answer[i] : (answer[i] + 1) % vocab_size_);
    }
  }
  int num_asked() const { return num_asked_; }

 private:
  const int vocab_size_, percent_;
  std::mt19937 rng_;
  int num_asked_ = 0;
};

}  // namespace continuo
