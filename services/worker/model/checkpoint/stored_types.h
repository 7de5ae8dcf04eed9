// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/tensor.h"
#include "services/worker/quantised/matrix.h"

namespace continuo::model {

// A type of element that a checkpoint's weights may be stored in.
struct StoredType {
  std::string_view name;                // as safetensors or GGUF names it
  int64_t block;                        // elements that are stored together
  int64_t bytes;                        // of a block
  std::optional<kernels::DType> dtype;  // the type in memory that has the same bytes, if any
  // Converts the elements [first, first + n) of a row at any address to f32, bf16 or f16. False
  // where a finite element becomes infinite in f16.
  bool (*convert)(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n);
};

// Null where weights of this type are not taken. A new stored type is a row of the table behind
// this function.
const StoredType* FindStoredType(std::string_view name);

// The table itself.
std::span<const StoredType> StoredTypes();

// Converts, as StoredType::convert does, the elements [first, first + n) of rows [row, row +
// num_rows) of a quantised matrix; `out` gets one row after the other.
bool ConvertQuantised(void* out, kernels::DType dtype, const quantised::Matrix& matrix, int64_t row,
                      int64_t num_rows, int64_t first, int64_t n);

// "F32, F16, BF16, Q4_0 … and MXFP4"
std::string StoredTypeNames();

}  // namespace continuo::model
