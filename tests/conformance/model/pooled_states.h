// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "services/worker/embedding/sentence_modules.h"

// Poolings as an engine makes them, for tests that run plans themselves.
namespace continuo::testing {

// The rows of a text whose states are read.
inline std::vector<int> PooledRows(embedding::Pooling pooling, size_t num_tokens) {
  if (pooling == embedding::Pooling::kLast) return {static_cast<int>(num_tokens) - 1};
  if (pooling == embedding::Pooling::kFirst) return {0};
  std::vector<int> all(num_tokens);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The mean of the states of one text's rows, which is that of a single row itself.
inline std::vector<float> MeanOf(std::span<const std::vector<float>> states) {
  if (states.size() == 1) return states.front();
  std::vector<double> sum(states.front().size());
  for (const std::vector<float>& state : states) {
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(state[k]);
  }
  std::vector<float> mean;
  for (const double value : sum) {
    mean.push_back(static_cast<float>(value / static_cast<double>(states.size())));
  }
  return mean;
}

}  // namespace continuo::testing
