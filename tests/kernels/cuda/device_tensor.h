// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "services/base/check.h"
#include "tests/kernels/host_tensor.h"

// Tensors of a Device whose memory the host does not read, and the types that they have.
namespace continuo::testing {

// A copy of a host tensor on the device, which Get copies back.
class DeviceTensor {
 public:
  DeviceTensor(kernels::Device& device, const kernels::Tensor& host)
      : device_(device), tensor_(host) {
    auto data = device.Allocate(host.bytes());
    CONTINUO_CHECK(data.ok());
    tensor_.data = *data;
    device.CopyIn(tensor_, host.data);
    CONTINUO_CHECK(device.Synchronize().ok());
  }
  ~DeviceTensor() { device_.Free(tensor_.data); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  operator kernels::Tensor() const { return tensor_; }  // NOLINT
  kernels::Weight weight() const { return {tensor_, kernels::WeightFormat::kDense}; }
  HostTensor Get() const {
    HostTensor host(tensor_.dtype, tensor_.shape);
    device_.CopyOut(host.tensor().data, tensor_);
    const absl::Status status = device_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return host;
  }

 private:
  kernels::Device& device_;
  kernels::Tensor tensor_;
};

inline constexpr kernels::DType kActivations[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                                  kernels::DType::kF16};
inline constexpr kernels::DType kCacheTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                                 kernels::DType::kF16, kernels::DType::kI8,
                                                 kernels::DType::kF8};

// The outputs of products with quantised weights.
inline constexpr kernels::DType kF32AndBF16[] = {kernels::DType::kF32, kernels::DType::kBF16};
// The types that tensor cores multiply.
inline constexpr kernels::DType kNumbers[] = {kernels::DType::kBF16, kernels::DType::kF16};

// Converts a host tensor to another type.
inline HostTensor As(kernels::DType type, const HostTensor& from) {
  HostTensor to(type, from.tensor().shape);
  const Matrix values = from.matrix();
  for (size_t i = 0; i < values.size(); ++i) {
    to.Set(static_cast<int64_t>(i), static_cast<float>(values[i]));
  }
  return to;
}

}  // namespace continuo::testing
