// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "kernels/group_format.h"

namespace continuo::kernels {

enum class DType : uint8_t { kF32, kBF16, kF16, kI8, kI32, kF8 };  // kF8: e4m3

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kI8:
    case DType::kF8:
      return 1;
  }
  return 0;
}

// A view of a row-major array in device memory. It owns nothing and is cheap to copy. Unused
// trailing dimensions are 1. A dimension may be 0 (a rank that owns no head): the ops then do
// nothing, or write zeros where the result is a sum over nothing.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  std::array<int64_t, 3> shape = {0, 1, 1};

  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return shape[1] * shape[2]; }  // elements of one row
  int64_t size() const { return rows() * cols(); }
  size_t bytes() const { return static_cast<size_t>(size()) * SizeOf(dtype); }
};

// The numbers of a weight matrix. int8 and int4 have a scale for each row and group of columns; the
// CPU rounds activations that they are multiplied with to int8 likewise, CUDA devices keep them
// bf16. fp16 and fp8 (e4m3, with a scale for each row of both factors) are for CUDA devices.
// Stored, for the CPU, are the integers of a quantised file: int8 or int4 by matrix, in the groups
// that the file has.
enum class WeightType : uint8_t { kF32, kBF16, kF16, kInt8, kInt4, kFp8, kStored };

// The name in flags.
constexpr const char* NameOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "fp32";
    case WeightType::kBF16:
      return "bf16";
    case WeightType::kF16:
      return "fp16";
    case WeightType::kInt8:
      return "int8";
    case WeightType::kInt4:
      return "int4";
    case WeightType::kFp8:
      return "fp8";
    case WeightType::kStored:
      return "stored";
  }
  return "";
}

// The layout of a weight matrix in a device's memory: row-major in data.dtype, or packed by the
// device (cpu/matmul/panel_layout.h, cuda/formats/fp8.h, cuda/formats/quantised_layout.h).
// CONTRIBUTING.md says how to add one.
enum class WeightFormat : uint8_t {
  kDense,
  kBF16Panels,
  kInt8Panels,
  kInt4Panels,
  kFp8Rows,
  kF32Panels
};

// A packed matrix is filled in multiples of this many rows (MatMulOps::PackRows).
inline constexpr int64_t kPackedRows = 16;

struct Weight {
  Tensor data;  // [out, in]; packed ones have MatMulOps::WeightBytes instead of Tensor::bytes
  WeightFormat format = WeightFormat::kDense;
  GroupFormat groups = {};  // of kInt8Panels and kInt4Panels
};

// True if products with both may read the same rounded activations.
inline bool IsAlike(const Weight& a, const Weight& b) {
  return a.format == b.format && a.groups == b.groups;
}

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
