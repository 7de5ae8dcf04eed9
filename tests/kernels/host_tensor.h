// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/device.h"
#include "kernels/math/bfloat16.h"
#include "services/base/check.h"
#include "services/base/random.h"
#include "tests/testing/reference_ops.h"

namespace continuo::testing {

// Makes numbers for inputs, the same on every machine.
class Random : public SplitMix64 {
 public:
  using SplitMix64::SplitMix64;

  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  // A multiple of 2^-10 in [-2, 2).
  float Value() { return static_cast<float>(Below(4096) - 2048) * 0x1p-10f; }
};

// A tensor in memory of exactly its size, so that a sanitizer sees the element after the last.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(kernels::DType dtype, std::array<int64_t, 3> shape) : dtype_(dtype), shape_(shape) {
    bytes_ = std::make_shared<std::vector<std::byte>>(tensor().bytes());
  }
  HostTensor(kernels::DType dtype, int64_t rows, int64_t cols)
      : HostTensor(dtype, {rows, cols, 1}) {}

  static HostTensor OfInts(const std::vector<int32_t>& values, int64_t cols = 1) {
    HostTensor t(kernels::DType::kI32, static_cast<int64_t>(values.size()) / cols, cols);
    if (!values.empty()) std::memcpy(t.bytes_->data(), values.data(), t.bytes_->size());
    return t;
  }
  static HostTensor OfFloats(const std::vector<float>& values) {
    HostTensor t(kernels::DType::kF32, static_cast<int64_t>(values.size()), 1);
    for (size_t i = 0; i < values.size(); ++i) t.Set(static_cast<int64_t>(i), values[i]);
    return t;
  }
  static HostTensor Of(kernels::DType dtype, int64_t rows, int64_t cols, Random& random,
                       float factor = 1) {
    HostTensor t(dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; ++i) t.Set(i, random.Value() * factor);
    return t;
  }
  // Returns a tensor filled with NaN: an element that an op does not write, or reads from its
  // output, shows.
  static HostTensor Poisoned(kernels::DType dtype, int64_t rows, int64_t cols) {
    HostTensor t(dtype, rows, cols);
    std::fill(t.bytes_->begin(), t.bytes_->end(), std::byte{0xff});
    return t;
  }
  HostTensor Clone() const {
    HostTensor t = *this;
    t.bytes_ = std::make_shared<std::vector<std::byte>>(*bytes_);
    return t;
  }

  kernels::Tensor tensor() const { return {bytes_ ? bytes_->data() : nullptr, dtype_, shape_}; }
  operator kernels::Tensor() const { return tensor(); }  // NOLINT
  kernels::Weight weight() const { return {tensor(), kernels::WeightFormat::kDense}; }
  Matrix matrix() const { return ToMatrix(tensor()); }
  std::vector<int32_t> ints() const {
    const int32_t* p = reinterpret_cast<const int32_t*>(bytes_->data());
    return {p, p + tensor().size()};
  }
  // Returns rows [begin, end), which share the memory.
  kernels::Tensor Rows(int64_t begin, int64_t end) const {
    kernels::Tensor t = tensor();
    t.data = bytes_->data() + begin * t.cols() * static_cast<int64_t>(kernels::SizeOf(dtype_));
    t.shape[0] = end - begin;
    return t;
  }

  void Set(int64_t i, float value) {
    std::byte* p = bytes_->data() + i * static_cast<int64_t>(kernels::SizeOf(dtype_));
    if (dtype_ == kernels::DType::kF32) {
      std::memcpy(p, &value, 4);
    } else {
      CONTINUO_CHECK(dtype_ == kernels::DType::kBF16 || dtype_ == kernels::DType::kF16);
      const uint16_t bits =
          dtype_ == kernels::DType::kBF16 ? kernels::ToBF16(value) : kernels::ToF16(value);
      std::memcpy(p, &bits, 2);
    }
  }

  bool SameBits(const HostTensor& other) const { return *bytes_ == *other.bytes_; }
  const std::vector<std::byte>& bytes() const { return *bytes_; }

 private:
  kernels::DType dtype_ = kernels::DType::kF32;
  std::array<int64_t, 3> shape_ = {0, 1, 1};
  std::shared_ptr<std::vector<std::byte>> bytes_;
};

// Returns a value rounded to a type.
inline float RoundedTo(kernels::DType dtype, float value) {
  return dtype == kernels::DType::kBF16  ? kernels::FromBF16(kernels::ToBF16(value))
         : dtype == kernels::DType::kF16 ? kernels::FromF16(kernels::ToF16(value))
                                         : value;
}

// Returns the largest relative error of rounding to the type; for f16, of its normal numbers.
inline double RoundingOf(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 ? 0x1p-24 : dtype == kernels::DType::kF16 ? 0x1p-11 : 0x1p-8;
}

// Expects each element within `relative` of its size plus `absolute[i]` (or absolute[0] for all),
// and for f16 half of its smallest number.
inline void ExpectNear(const HostTensor& actual, const Matrix& expected, double relative,
                       const Matrix& absolute) {
  const Matrix got = actual.matrix();
  const double least = actual.tensor().dtype == kernels::DType::kF16 ? 0x1p-25 : 0;
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound =
        relative * std::fabs(expected[i]) + absolute[absolute.size() == 1 ? 0 : i] + least;
    ASSERT_LE(std::fabs(got[i] - expected[i]), bound)
        << "element " << i << " is " << got[i] << ", expected " << expected[i];
  }
}

inline std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const kernels::cpu::KernelTable* table : kernels::cpu::AvailableKernels())
    names.push_back(table->name);
  return names;
}

inline std::unique_ptr<kernels::Device> MakeCpu(const std::string& isa, int num_threads = 1) {
  auto device = kernels::MakeDevice({.device = "cpu", .num_threads = num_threads, .isa = isa});
  CONTINUO_CHECK(device.ok());
  return *std::move(device);
}

inline const char* NameOf(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 ? "f32" : dtype == kernels::DType::kBF16 ? "bf16" : "f16";
}

// A fact about every instruction set that this machine runs.
class IsaTest : public ::testing::TestWithParam<std::string> {
 protected:
  const kernels::Ops& ops() const { return device_->ops(); }

  std::unique_ptr<kernels::Device> device_ = MakeCpu(GetParam());
};

#define INSTANTIATE_FOR_ISAS(Test)                                          \
  INSTANTIATE_TEST_SUITE_P(Isa, Test, ::testing::ValuesIn(AvailableIsas()), \
                           [](const auto& info) { return info.param; })

}  // namespace continuo::testing
