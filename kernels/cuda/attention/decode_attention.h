// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/attention/kv_layout.h"
#include "kernels/cuda/attention/query_tile.h"
#include "kernels/cuda/runtime/kernel_stream.h"

namespace continuo::kernels::cuda {

// AttentionOps::PagedAttention of sequences of one row each, on tensor cores, for bf16 or f16
// queries over keys and values of the same type, int8 or e4m3. It is bound by reading keys and
// values: each is read once for all queries that share it, and all blocks have shares of nearly the
// same number of positions (Shares), whatever the lengths of sequences. The last block of a
// sequence and key-value head that several blocks share merges their parts in ascending order.
//
// Products of 8-bit keys and values are those of f16: both become f16 exactly, and queries are
// multiplied by a power of 2 so that they do, too, but for elements 2^31 times smaller than the
// largest. A score is a sum in f32, times the key's scale. Scores are multiplied by `scale` and
// capped. A weight is 2^(score log2(e) - m), where the integer m is at least the largest exponent
// so far; it is rounded to the type of the values. The sum of weights is of the rounded ones, so a
// position that has all weight gives its value exactly. Weights of 8-bit values are multiplied by
// the value's scale before they are rounded, m counts the scale's exponent, and the sum of weights
// is of the unrounded, unscaled ones.
//
// A row's bits depend on the other rows through the shares. NaN in a value that a row does not see
// does not reach it.
struct DecodePlan {
  int blocks = 1;
  size_t scratch_bytes = 0;
};

// Returns whether there is a kernel for the step's heads. Each sequence has one row.
bool FitsDecodeAttention(const AttentionStep& step);

// No sequence is longer than max_kv_len.
DecodePlan PlanDecodeAttention(const AttentionStep& step, int64_t max_kv_len,
                               int num_multiprocessors);

// Most blocks of a plan, each of which has a counter.
inline constexpr int kMostDecodeBlocks = 1024;

// out and q [rows, num_heads * head_dim] have type Number, uint16_t (bf16) or Half, and are 16-byte
// aligned. Element is Number, int8_t or uint8_t. There are kMostDecodeBlocks counters, which are
// zero before and after. Returns the error of the launch.
template <typename Number, typename Element>
cudaError_t DecodeAttention(Number* out, const Number* q, const KvLayout<const Element>& kv,
                            const AttentionStep& step, const DecodePlan& plan, float* scratch,
                            uint32_t* counters, KernelStream stream);

}  // namespace continuo::kernels::cuda
