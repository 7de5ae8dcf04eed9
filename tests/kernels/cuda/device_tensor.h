// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "services/base/check.h"
#include "tests/kernels/host_tensor.h"

// Tensors of a Backend whose memory the host does not read, and the types that they have.
namespace continuo::testing {

// A host tensor's copy on the device, and back.
class DeviceTensor {
 public:
  DeviceTensor(kernels::Backend& backend, const kernels::Tensor& host)
      : backend_(backend), tensor_(host) {
    auto data = backend.Allocate(host.bytes());
    CONTINUO_CHECK(data.ok());
    tensor_.data = *data;
    backend.CopyIn(tensor_, host.data);
    CONTINUO_CHECK(backend.Synchronize().ok());
  }
  ~DeviceTensor() { backend_.Free(tensor_.data); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  operator kernels::Tensor() const { return tensor_; }  // NOLINT
  kernels::Weight weight() const { return {tensor_, kernels::WeightFormat::kDense}; }
  HostTensor Get() const {
    HostTensor host(tensor_.dtype, tensor_.shape);
    backend_.CopyOut(host.tensor().data, tensor_);
    const absl::Status status = backend_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return host;
  }

 private:
  kernels::Backend& backend_;
  kernels::Tensor tensor_;
};

inline constexpr kernels::DType kActivations[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                                  kernels::DType::kF16};
inline constexpr kernels::DType kCacheTypes[] = {kernels::DType::kF32, kernels::DType::kBF16,
                                                 kernels::DType::kF16, kernels::DType::kI8,
                                                 kernels::DType::kF8};

// Of those, what rounded weights are multiplied to.
inline constexpr kernels::DType kF32AndBF16[] = {kernels::DType::kF32, kernels::DType::kBF16};
// Of those, what tensor cores take.
inline constexpr kernels::DType kNumbers[] = {kernels::DType::kBF16, kernels::DType::kF16};

// A host tensor in another type.
inline HostTensor As(kernels::DType type, const HostTensor& from) {
  HostTensor to(type, from.tensor().shape);
  const Matrix values = from.matrix();
  for (size_t i = 0; i < values.size(); ++i) {
    to.Set(static_cast<int64_t>(i), static_cast<float>(values[i]));
  }
  return to;
}

}  // namespace continuo::testing
