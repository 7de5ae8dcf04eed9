// SPDX-License-Identifier: Apache-2.0
// Constants of quantised weights that every device shares. It has no functions, since files that
// are compiled for one instruction set include it.
#pragma once

namespace continuo::kernels::host {

// The number of elements of a row of weights that share a scale on CUDA devices.
constexpr int kInt8Group = 128;
constexpr int kInt4Group = 64;

// A group whose largest element is smaller than this counts as zeros, so that no scale is so small
// that its inverse is infinite.
constexpr float kSmallestScaled = 0x1p-100f;

// Adding this to |x| < 2^22 leaves the nearest integer in the low bits, ties to even.
constexpr float kRoundShift = 12582912.0f;  // 1.5 · 2^23

}  // namespace continuo::kernels::host
