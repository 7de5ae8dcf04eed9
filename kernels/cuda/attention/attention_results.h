// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/attention_tile.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/launch.h"

// Writes the results of a block's tile of queries. Only .cu files include this header.
namespace continuo::kernels::cuda {

// The destination of a block's results: rows of out or, for a split, places in scratch.
template <typename Number>
struct Results {
  Number* out;
  float* sums;     // [place, head_dim]; null: results go to out
  float* weights;  // [place, 2]: maximum and sum of weights
  int64_t first_place;

  __device__ void Weight(int query, float max, float weight) const {
    if (sums == nullptr) return;
    weights[(first_place + query) * 2] = max;
    weights[(first_place + query) * 2 + 1] = weight;
  }
  // Writes elements d and d + 1 of a query's sums or, in out, of its result.
  __device__ void Sums(const AttentionStep& step, const QueryTile& tile, int query, int d, float a,
                       float b) const {
    if (sums != nullptr) {
      float* const to = sums + (first_place + query) * step.head_dim + d;
      to[0] = a;
      to[1] = b;
      return;
    }
    Number* const to =
        out + (tile.Row(query) * step.num_heads + tile.Head(query)) * step.head_dim + d;
    *reinterpret_cast<uint32_t*>(to) = RoundPair<Number>(a, b);
  }
};

template <typename S>
__device__ void WriteWarp(const Accumulator<S>& acc, const Results<typename S::Number>& results,
                          const AttentionStep& step, const QueryTile& tile, int first_query) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  CONTINUO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + lane / 4 + half * 8;
    if (query >= tile.num_pairs) continue;
    if (lane % 4 == 0) results.Weight(query, acc.max[half], acc.weight[half]);
    // One division for the row; sums of a split are divided when they are merged.
    float factor = 1;
    if (results.sums == nullptr) {
      factor = 1 / (acc.weight[half] + SinkWeight(step, tile.Head(query), acc.max[half]));
    }
    CONTINUO_UNROLL
    for (int i = 0; i < S::kDim / 8; ++i) {
      const int d = i * 8 + lane % 4 * 2;
      if (d < step.head_dim) {
        results.Sums(step, tile, query, d, acc.sums[i][half * 2] * factor,
                     acc.sums[i][half * 2 + 1] * factor);
      }
    }
  }
}

}  // namespace continuo::kernels::cuda
