// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A matrix as the device packs it, in memory of exactly its size.
class PackedWeight {
 public:
  PackedWeight(kernels::Device& device, kernels::WeightType type, const HostTensor& matrix,
               std::vector<int64_t> split_begin = {}) {
    const kernels::Tensor t = matrix.tensor();
    if (split_begin.empty()) split_begin = {0, t.cols()};
    weight_.format = device.ops().matmul.PackedFormatOf(type);
    const bool is_dense = weight_.format == kernels::WeightFormat::kDense;
    weight_.data = {nullptr,
                    !is_dense                           ? kernels::DType::kI8
                    : type == kernels::WeightType::kF32 ? kernels::DType::kF32
                                                        : kernels::DType::kBF16,
                    {t.rows(), t.cols(), 1}};
    const size_t bytes = device.ops().matmul.WeightBytes(weight_, split_begin);
    // Panels begin at cache lines.
    memory_ = std::shared_ptr<std::byte[]>(static_cast<std::byte*>(std::aligned_alloc(
                                               64, std::max<size_t>(64, (bytes + 63) / 64 * 64))),
                                           [](std::byte* p) { std::free(p); });
    weight_.data.data = memory_.get();
    if (is_dense) {
      HostTensor dense(weight_.data.dtype, t.rows(), t.cols());
      const Matrix values = matrix.matrix();
      for (size_t i = 0; i < values.size(); ++i) {
        dense.Set(static_cast<int64_t>(i), static_cast<float>(values[i]));
      }
      if (bytes > 0) std::memcpy(memory_.get(), dense.bytes().data(), bytes);
      return;
    }
    // It is packed in two halves, to see that they find their places.
    const int64_t half = t.rows() / 2 / kernels::kPackedRows * kernels::kPackedRows;
    for (const auto& [begin, end] : {std::pair{int64_t{0}, half}, std::pair{half, t.rows()}}) {
      if (begin == end) continue;
      std::vector<float> rows;
      for (const double v : ToMatrix(matrix.Rows(begin, end)))
        rows.push_back(static_cast<float>(v));
      device.ops().matmul.PackRows(weight_, split_begin, begin, rows.data(), end - begin);
    }
  }

  const kernels::Weight& weight() const { return weight_; }
  // Returns the values of the packed numbers, row-major. The matrix has one K split.
  Matrix Unpacked(kernels::Device& device) const {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < weight_.data.rows(); ++i) ids.push_back(static_cast<int32_t>(i));
    HostTensor out =
        HostTensor::Poisoned(kernels::DType::kF32, weight_.data.rows(), weight_.data.cols());
    device.ops().rows.Embed(out, weight_, HostTensor::OfInts(ids), 0, 1.0f);
    return out.matrix();
  }

 private:
  std::shared_ptr<std::byte[]> memory_;
  kernels::Weight weight_;
};

}  // namespace continuo::testing
