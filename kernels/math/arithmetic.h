// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::kernels {

// Raised whenever any op's bits change for some input; part of the worker's fingerprint.
inline constexpr int kArithmeticVersion = 5;

// Where tensor parallelism splits K, K is cut into this many splits whatever the number of ranks
// (exactness: fixed-k-order). A rank owns whole subtrees of their sum, so 1, 2, 4 and 8 ranks give
// the same bits.
inline constexpr int kNumSplits = 8;

// Positions whose attention is reduced by itself before chunks are merged in ascending order
// (exactness: fixed-attention-chunks). It does not depend on the KV cache's block size.
inline constexpr int kKvChunk = 128;

}  // namespace continuo::kernels
