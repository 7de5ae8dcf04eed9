// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/math/bfloat16.h"
#include "tests/kernels/host_tensor.h"

namespace continuo::testing {

// A way in which files store integers of groups.
struct GroupCase {
  std::string name;
  int bits;
  kernels::GroupFormat groups;
};

// One of each kind, and of each size of groups.
inline std::vector<GroupCase> GroupCases() {
  using kernels::GroupScales;
  return {{"int4 by 8", 4, {8, 8, GroupScales::kF32, false}},
          {"int4 by 32 with minima", 4, {32, 32, GroupScales::kF32, true}},
          {"int4 by 64 with minima", 4, {64, 64, GroupScales::kF32, true}},
          {"int4 by 128 with minima", 4, {128, 128, GroupScales::kF32, true}},
          {"Q4_0", 4, {32, 64, GroupScales::kF16, false}},
          {"Q4_1", 4, {32, 32, GroupScales::kF16, true}},
          {"Q2_K", 4, {16, 64, GroupScales::kShared, true}},
          {"Q3_K", 4, {16, 32, GroupScales::kShared, false}},
          {"Q4_K", 4, {32, 256, GroupScales::kShared, true}},
          {"IQ4_NL", 4, {32, 64, GroupScales::kF16, false, kernels::GroupCodes::kIq4}},
          {"IQ4_XS", 4, {32, 256, GroupScales::kShared, false, kernels::GroupCodes::kIq4}},
          {"MXFP4", 4, {32, 32, GroupScales::kF32, false, kernels::GroupCodes::kFp4}},
          {"int8 by 128 with minima", 8, {128, 128, GroupScales::kF32, true}},
          {"Q8_0", 8, {32, 64, GroupScales::kF16, false}},
          {"Q5_1", 8, {32, 32, GroupScales::kF16, true}},
          {"Q5_K", 8, {32, 128, GroupScales::kShared, true}},
          {"Q6_K", 8, {16, 256, GroupScales::kShared, false}}};
}

// A matrix of integers of groups, as a file has them.
struct StoredMatrix {
  static constexpr float kMinimumFactor = 0.125f;  // minima are below twice of it

  StoredMatrix(const GroupCase& c, int64_t num_rows, int64_t num_columns, Random& random)
      : kind(c), rows(num_rows), columns(num_columns) {
    const kernels::GroupFormat& groups = c.groups;
    const bool is_shared = groups.scales == kernels::GroupScales::kShared;
    const int lowest = c.bits == 8 ? -128 : groups.has_minimum ? 0 : -8;
    const auto half = [&](float size) {
      return kernels::FromF16(kernels::ToF16(size * random.Value()));
    };
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int code = random.Below(c.bits == 8 ? 256 : 16);
      integers.push_back(groups.codes == kernels::GroupCodes::kIq4 ? kernels::kIq4Integers[code]
                         : groups.codes == kernels::GroupCodes::kFp4
                             ? kernels::kFp4Integers[code]
                             : static_cast<int8_t>(lowest + code));
    }
    for (int64_t i = 0; i < rows * columns / groups.size; ++i) {
      scales.push_back(is_shared ? static_cast<float>(random.Below(256) - 128) : half(0.02f));
      minima.push_back(is_shared ? static_cast<float>(random.Below(256) - 128)
                                 : half(kMinimumFactor));
    }
    for (int64_t i = 0; is_shared && i < rows * columns / groups.unit; ++i) {
      shared_scales.push_back(half(0.0003f));
      shared_minima.push_back(half(kMinimumFactor / 128));
    }
  }

  // The value of an element, as GroupFormat defines it.
  float Value(int64_t element) const {
    const auto group = static_cast<size_t>(element / kind.groups.size);
    float scale = scales[group], minimum = minima[group];
    if (kind.groups.scales == kernels::GroupScales::kShared) {
      const auto unit = static_cast<size_t>(element / kind.groups.unit);
      scale *= shared_scales[unit];
      minimum *= shared_minima[unit];
    }
    const float product = scale * static_cast<float>(integers[static_cast<size_t>(element)]);
    return kind.groups.has_minimum ? product + minimum : product;
  }
  Matrix Values() const {
    Matrix values;
    for (int64_t i = 0; i < rows * columns; ++i) values.push_back(Value(i));
    return values;
  }
  // The number of each element, row by row.
  HostTensor Elements() const {
    HostTensor elements(kernels::DType::kF32, rows, columns);
    for (int64_t i = 0; i < rows * columns; ++i) elements.Set(i, static_cast<float>(i));
    return elements;
  }

  GroupCase kind;
  int64_t rows, columns;
  std::vector<int8_t> integers;
  std::vector<float> scales, minima, shared_scales, shared_minima;
};

// Some elements of a stored matrix, whole groups and units of it, as the device packs them, in
// memory of exactly its size.
class GroupedWeight {
 public:
  GroupedWeight(kernels::Device& device, const StoredMatrix& stored, const HostTensor& elements,
                std::vector<int64_t> split_begin = {}) {
    const kernels::Tensor t = elements.tensor();
    if (split_begin.empty()) split_begin = {0, t.cols()};
    weight_.data = {nullptr, kernels::DType::kI8, {t.rows(), t.cols(), 1}};
    weight_.format = stored.kind.bits == 8 ? kernels::WeightFormat::kInt8Panels
                                           : kernels::WeightFormat::kInt4Panels;
    weight_.groups = stored.kind.groups;
    const size_t bytes = device.ops().matmul.WeightBytes(weight_, split_begin);
    memory_ = std::shared_ptr<std::byte[]>(static_cast<std::byte*>(std::aligned_alloc(
                                               64, std::max<size_t>(64, (bytes + 63) / 64 * 64))),
                                           [](std::byte* p) { std::free(p); });
    weight_.data.data = memory_.get();
    // It is packed in two halves, to see that they find their places.
    const int64_t half = t.rows() / 2 / kernels::kPackedRows * kernels::kPackedRows;
    Pack(device, stored, elements.matrix(), split_begin, 0, half);
    Pack(device, stored, elements.matrix(), split_begin, half, t.rows());
  }
  GroupedWeight(kernels::Device& device, const StoredMatrix& stored)
      : GroupedWeight(device, stored, stored.Elements()) {}

  const kernels::Weight& weight() const { return weight_; }

 private:
  void Pack(kernels::Device& device, const StoredMatrix& stored, const Matrix& elements,
            const std::vector<int64_t>& split_begin, int64_t begin, int64_t end) {
    if (begin == end) return;
    const kernels::GroupFormat& groups = stored.kind.groups;
    std::vector<int8_t> integers;
    std::vector<float> scales, minima, shared_scales, shared_minima;
    const int64_t columns = weight_.data.cols();
    for (int64_t i = begin * columns; i < end * columns; ++i) {
      const auto element = static_cast<int64_t>(elements[static_cast<size_t>(i)]);
      integers.push_back(stored.integers[static_cast<size_t>(element)]);
      if (i % groups.size == 0) {
        scales.push_back(stored.scales[static_cast<size_t>(element / groups.size)]);
        minima.push_back(stored.minima[static_cast<size_t>(element / groups.size)]);
      }
      if (i % groups.unit == 0 && !stored.shared_scales.empty()) {
        shared_scales.push_back(stored.shared_scales[static_cast<size_t>(element / groups.unit)]);
        shared_minima.push_back(stored.shared_minima[static_cast<size_t>(element / groups.unit)]);
      }
    }
    device.ops().matmul.PackGroups(
        weight_, split_begin, begin,
        {integers.data(), scales.data(), minima.data(), shared_scales.data(), shared_minima.data()},
        end - begin);
  }

  std::shared_ptr<std::byte[]> memory_;
  kernels::Weight weight_;
};

}  // namespace continuo::testing
