// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/state_reader.h"

#include <cstring>

#include "kernels/math/bfloat16.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {

StateReader::StateReader(kernels::Device& device, kernels::DType activations, int hidden_size)
    : device_(device), activations_(activations), hidden_size_(hidden_size) {}

StateReader::~StateReader() {
  for (uint8_t* const buffer : buffers_) {
    if (buffer != nullptr) device_.FreeHost(buffer);
  }
}

absl::Status StateReader::Reserve(int max_rows) {
  const size_t bytes = static_cast<size_t>(max_rows) * static_cast<size_t>(hidden_size_) *
                       kernels::SizeOf(activations_);
  for (uint8_t*& buffer : buffers_) {
    ASSIGN_OR_RETURN(void* const memory, device_.AllocateHost(bytes));
    buffer = static_cast<uint8_t*>(memory);
  }
  max_rows_ = max_rows;
  return absl::OkStatus();
}

void StateReader::Copy(int parity, int64_t first, kernels::Tensor states) {
  CONTINUO_CHECK(states.dtype == activations_ && states.cols() == hidden_size_);
  CONTINUO_CHECK(first >= 0 && first + states.rows() <= max_rows_);
  const size_t row_bytes = static_cast<size_t>(hidden_size_) * kernels::SizeOf(activations_);
  device_.CopyOut(buffers_[static_cast<size_t>(parity)] + static_cast<size_t>(first) * row_bytes,
                  states);
}

std::vector<float> StateReader::Row(int parity, int64_t row) const {
  CONTINUO_CHECK(row >= 0 && row < max_rows_);
  const auto size = static_cast<size_t>(hidden_size_), width = kernels::SizeOf(activations_);
  const uint8_t* const from =
      buffers_[static_cast<size_t>(parity)] + static_cast<size_t>(row) * size * width;
  std::vector<float> values(size);
  if (activations_ == kernels::DType::kF32) {
    std::memcpy(values.data(), from, size * width);
    return values;
  }
  for (size_t i = 0; i < size; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + i * width, sizeof(bits));
    values[i] =
        activations_ == kernels::DType::kBF16 ? kernels::FromBF16(bits) : kernels::FromF16(bits);
  }
  return values;
}

}  // namespace continuo::model
