// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace continuo::model {

// Copies final hidden states of steps to the host. Double-buffered by step parity, so two steps can
// be in flight. One thread at a time.
class StateReader {
 public:
  // The device outlives this. States are [hidden_size] of `activations`: f32, bf16 or f16.
  StateReader(kernels::Device& device, kernels::DType activations, int hidden_size);
  ~StateReader();
  StateReader(const StateReader&) = delete;
  StateReader& operator=(const StateReader&) = delete;

  // Allocates memory for steps of max_rows states. ResourceExhausted where there is not enough.
  absl::Status Reserve(int max_rows);
  // Enqueues a copy of `states` [n, hidden_size] to rows [first, first + n) of a step's buffer.
  void Copy(int parity, int64_t first, kernels::Tensor states);
  // Returns a row of the step's buffer, widened; the device has finished the step.
  std::vector<float> Row(int parity, int64_t row) const;

 private:
  kernels::Device& device_;
  const kernels::DType activations_;
  const int hidden_size_;
  int64_t max_rows_ = 0;
  std::array<uint8_t*, 2> buffers_ = {};  // [max_rows_, hidden_size_] each, of AllocateHost
};

}  // namespace continuo::model
