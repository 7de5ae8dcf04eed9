// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>

#include "kernels/tensor.h"

namespace continuo::kernels {

// The activations x of products, and optionally what the device's products read in their place: the
// op that wrote x (AddSumNorm, GatedMatMul) put it into memory of the caller and returned this
// value. On CUDA devices with fp8 weights it is x in e4m3, which every product would otherwise make
// anew. It is valid while neither x nor that memory changes; results do not depend on it.
struct MatMulInput {
  MatMulInput() = default;
  // A tensor is an input.
  template <std::convertible_to<Tensor> Rows>
  MatMulInput(const Rows& rows) : x(rows) {}  // NOLINT
  MatMulInput(Tensor rows, const void* memory) : x(rows), prepared(memory) {}

  Tensor x;
  const void* prepared = nullptr;  // null: nothing
};

}  // namespace continuo::kernels
