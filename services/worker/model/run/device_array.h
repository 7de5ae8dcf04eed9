// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/base/status_macros.h"

namespace continuo::model {

// An i32 array in device memory that grows when more is uploaded than ever before, so that steady
// steps allocate nothing.
class DeviceArray {
 public:
  explicit DeviceArray(kernels::Device& device) : device_(device) {}
  ~DeviceArray() {
    if (data_ != nullptr) device_.Free(data_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // Makes room for n elements. Ends earlier views.
  absl::Status Reserve(size_t n) {
    if (n <= capacity_) return absl::OkStatus();
    RETURN_IF_ERROR(device_.Synchronize());
    if (data_ != nullptr) device_.Free(data_);
    data_ = nullptr;
    capacity_ = std::max<size_t>(n, std::max<size_t>(256, capacity_ * 2));
    ASSIGN_OR_RETURN(data_, device_.Allocate(capacity_ * sizeof(int32_t)));
    return absl::OkStatus();
  }

  // Returns the view [host.size() / cols, cols] of a copy of `host`, which must not change until
  // the device has synchronised. Ends earlier views.
  absl::StatusOr<kernels::Tensor> Upload(std::span<const int32_t> host, int64_t cols = 1) {
    RETURN_IF_ERROR(Reserve(host.size()));
    const kernels::Tensor tensor = {
        data_, kernels::DType::kI32, {static_cast<int64_t>(host.size()) / cols, cols, 1}};
    if (!host.empty()) device_.CopyIn(tensor, host.data());
    return tensor;
  }

 private:
  kernels::Device& device_;
  void* data_ = nullptr;
  size_t capacity_ = 0;  // elements
};

}  // namespace continuo::model
