// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

// The sizes that one rank computes with, for models whose ops are compared with the reference.
namespace continuo::testing {

struct ModelSizes {
  const char* name;
  int64_t hidden, q, kv, ffn, vocab;
  int heads, kv_heads;  // heads of 128
  float rope_base;
};

inline constexpr int kHeadDim = 128;
inline constexpr ModelSizes kQwen = {"Qwen3-0.6B", 1024, 2048, 1024, 3072, 151936, 16, 8, 1e6f};
inline constexpr ModelSizes kLlama = {"Llama-3.1-8B", 4096, 4096, 1024, 14336, 128256, 32, 8, 5e5f};
// one rank of eight
inline constexpr ModelSizes kShard = {"a 70B", 8192, 1024, 128, 3584, 16032, 8, 1, 5e5f};
inline constexpr ModelSizes kModels[] = {kQwen, kLlama, kShard};

// Rows of a step: one, numbers on both sides of the limits between kernels, and a prompt.
inline constexpr int64_t kPrompt = 2048;
inline const std::vector<int64_t> kStepRows = {1, 16, 17, 128, kPrompt};

// A matrix [columns, k]. Where ranks divide k it is cut into K splits.
struct MatrixSizes {
  int64_t columns, k;
  bool is_split = false;
};

// Returns a layer's matrices: queries, keys (values have the same shape), output, gate (and up),
// down.
inline std::vector<MatrixSizes> MatricesOf(const ModelSizes& m) {
  return {{m.q, m.hidden},
          {m.kv, m.hidden},
          {m.hidden, m.q, true},
          {m.ffn, m.hidden},
          {m.hidden, m.ffn, true}};
}

}  // namespace continuo::testing
