// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "services/worker/model/executor.h"
#include "services/worker/model/run/sampler.h"

namespace continuo::testing {

// A random request. Logits of odd cases are multiples of 1/4 with penalties that are exact, so
// that ties are frequent and are ties in any arithmetic.
struct RandomCase {
  std::vector<float> logits;
  std::vector<kernels::LogitBias> biases;
  std::vector<kernels::SeenToken> seen;
  std::vector<uint32_t> mask;
  model::SampleInput input;

  // `vocab` is the number of ids, or 0 for a random one. Larger powers leave fewer logits near the
  // largest.
  explicit RandomCase(uint64_t number, size_t vocab = 0, int power = 1) {
    std::mt19937_64 random(number);
    const auto below = [&random](uint64_t n) { return random() % n; };
    const bool coarse = number % 2 == 1;
    const size_t any = 1 + (below(4) == 0 ? below(3000) : below(80));
    if (vocab == 0) vocab = any;
    const float spread = std::array{0.5f, 2.0f, 8.0f}[below(3)];
    for (size_t id = 0; id < vocab; ++id) {
      const float unit = static_cast<float>(below(1 << 20)) / (1 << 20) * 2 - 1;
      float u = unit;
      for (int i = 1; i < power; ++i) u *= unit;
      logits.push_back(coarse ? std::round(u * spread * 4) / 4 : u * spread);
    }
    model::SamplingParams& p = input.params;
    p.temperature = std::array{0.0f, 0.25f, 0.7f, 1.0f, 1.0f, 3.0f, 100.0f}[below(7)];
    p.top_k = below(2) == 0 ? 0 : static_cast<int32_t>(1 + below(2 * vocab));
    p.top_p = std::array{1.0f, 1.0f, 0.95f, 0.5f, 0.01f}[below(5)];
    p.min_p = std::array{0.0f, 0.0f, 0.03f, 0.4f, 1.0f}[below(5)];
    p.repetition_penalty = std::array{1.0f, 0.5f, 2.0f}[below(3)];
    p.presence_penalty = std::array{0.0f, 1.5f, -2.0f}[below(3)];
    p.frequency_penalty = std::array{0.0f, 0.25f, -0.5f}[below(3)];
    if (!coarse) p.repetition_penalty *= 0.93f;
    p.seed = random();
    p.sequence_index = static_cast<int32_t>(below(128));
    input.position = static_cast<int32_t>(below(100000));
    for (size_t id = 0; id < vocab; ++id) {
      if (below(8) == 0) {
        biases.push_back({static_cast<int32_t>(id), static_cast<float>(below(65)) / 4 - 8});
      }
      if (below(4) == 0) {
        seen.push_back({static_cast<int32_t>(id), static_cast<int32_t>(below(4))});
      }
    }
    if (below(3) == 0) biases.clear();
    if (below(3) == 0) seen.clear();
    if (below(3) == 0) {
      p.masked = true;
      mask.resize(static_cast<size_t>(model::MaskWords(static_cast<int>(vocab))));
      for (uint32_t& word : mask) word = static_cast<uint32_t>(random());
      mask[0] |= 1;
    }
    input.logits = logits;
    input.biases = biases;
    input.seen = seen;
    input.mask = mask;
  }

  // Counts one token of the answer once more, often one of those seen.
  void CountOnceMore(uint64_t number) {
    input.answered = number % 3 != 0 && !seen.empty()
                         ? seen[number % seen.size()].token_id
                         : static_cast<int32_t>(number % logits.size());
  }
};

}  // namespace continuo::testing
