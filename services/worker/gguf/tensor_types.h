// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace continuo::gguf {

// A type of a GGUF file's tensors: blocks of elements of one row, each of some bytes (ggml's
// enum ggml_type and the sizes of its block structs).
struct TensorType {
  uint32_t id;
  std::string_view name;  // "Q4_K"
  int64_t block;          // elements of a block
  int64_t bytes;          // of a block
};

// Null where the number is of no known type. Types whose weights are not read are known, too, so
// that errors can name them.
const TensorType* FindTensorType(uint32_t id);

}  // namespace continuo::gguf
