// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace continuo::quantised {

// A tensor of a file: a view of its bytes, row-major, little-endian, with any alignment.
struct StoredPart {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
};

// The meaning of the stored bits of an element, before zero point and scale.
enum class Codes : uint8_t {
  kFloat8,      // a byte, E4M3 without infinities
  kInt8,        // a byte, two's complement
  kBiasedInt8,  // a byte, 128 is zero
  kBiasedInt4,  // half a byte, the low one first, 8 is zero
  kFloat4,      // half a byte, the low one first, E2M1
  kGptq4,       // a word has 8 elements of a column of the matrix, the lowest bits first
  kGptq8,       // likewise 4
  kAwq4,        // a word has an element of each of 8 rows, in AWQ's order
};

// A table of numbers that elements share, of which element (r, c) has the one at
// r / rows · row_step + group · group_step; group is c / columns, or the one of its column.
struct Shared {
  const uint8_t* bytes = nullptr;
  int64_t row_step = 0, group_step = 0;
};

enum class ScaleType : uint8_t { kF32, kBF16, kF16, kFloat8, kPowerOfTwo };

enum class ZeroType : uint8_t { kNone, kInt8, kPacked4, kPacked8, kAwq4 };

// Says that the elements of a matrix are integers of groups (kernels::GroupFormat) before they are
// rounded to value_type.
struct IntegerForm {
  int bits = 0;         // 4 or 8: what a GroupFormat keeps an integer in
  int64_t columns = 0;  // that share scale and minimum
  bool has_minimum = false;
  bool has_f16_scales = false;                                 // scales are f16 numbers
  kernels::GroupCodes codes = kernels::GroupCodes::kIntegers;  // of four bits
};

// The elements of a group, but for their integers.
struct GroupScale {
  float scale = 0;
  float minimum = 0;  // -zero · scale, rounded
};

// A matrix of weights that several stored tensors give. Its elements are (code - zero) · scale,
// rounded to value_type, as the format's own tool computes them, to the bit (exactness:
// stored-quantisation). Immutable; Decode may be called by several threads.
struct Matrix {
  std::string name;    // "model.layers.0.self_attn.q_proj.weight"
  std::string format;  // all that the values depend on beside the parts, as one word
  std::vector<StoredPart> parts;
  int64_t rows = 0, columns = 0;
  kernels::DType value_type = kernels::DType::kF32;

  Codes codes = Codes::kInt8;
  const uint8_t* code_bytes = nullptr;
  int64_t code_stride = 0;  // bytes of a row of what is stored

  ScaleType scale_type = ScaleType::kF32;
  int64_t shared_rows = 1, shared_columns = 1;  // that have one scale
  Shared scales;
  float divisor = 1;  // of the scales

  ZeroType zero_type = ZeroType::kNone;
  Shared zeros;                       // of packed ones, words, each for the rows of 32 bits
  uint32_t zero_plus = 0;             // is added to each word
  const uint8_t* group_of = nullptr;  // of each column, I32; null: in order

  // Writes the elements of `num_rows` rows from `row` on, of each `num_columns` from
  // `column` on, one row after the other.
  void Decode(int64_t row, int64_t num_rows, int64_t column, int64_t num_columns, float* out) const;

  // Nothing where the codes are floats of more than four bits, or columns of a group lie apart.
  std::optional<IntegerForm> integer_form() const;
  // Reads the integers of columns [column, column + n) of a row, which are in one group, and
  // returns what is theirs together. There is an integer_form.
  GroupScale ReadIntegers(int64_t row, int64_t column, int64_t n, int8_t* integers) const;
};

}  // namespace continuo::quantised
