// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/gguf/tensor_types.h"

namespace continuo::gguf {

// A metadata value. Whole numbers of all widths are int64_t, f32 is the double of the same shortest
// decimal (so that 1e-5 is 1e-5), arrays hold strings or else numbers, where true is 1. Strings are
// views of the file.
using Value = std::variant<bool, int64_t, double, std::string_view, std::vector<std::string_view>,
                           std::vector<double>>;

struct Tensor {
  std::string_view name;
  const TensorType* type;
  // Row-major, the last dimension is that of a row: GGUF's dimensions in the opposite order.
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
};

// The contents of one file.
struct Contents {
  std::vector<std::pair<std::string_view, Value>> metadata;  // in the file's order
  std::vector<Tensor> tensors;
};

// Parses a whole file of GGUF version 2 or 3, little-endian (ggml's specification of GGUF). Any
// bytes may be passed: InvalidArgument, beginning with `file_name`, where counts, lengths, types,
// dimensions or offsets do not fit the file or each other, where a key or a tensor is there twice,
// or where tensors overlap. The views point into `file`.
absl::StatusOr<Contents> ParseGguf(std::string_view file_name, std::span<const uint8_t> file);

}  // namespace continuo::gguf
