// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/group_format.h"

namespace continuo::gguf {

// A block as integers of groups, in the order of its elements. An element is scale · integer, or
// scale · integer + minimum, both rounded: what blocks.h decodes, to the bit.
struct IntegerBlock {
  int8_t integers[256];
  // Of each group. Of kShared whole numbers, which shared_scale and shared_minimum, f16 numbers,
  // are multiplied with.
  float scales[16], minima[16];
  float shared_scale, shared_minimum;
};

// A type whose blocks are such integers.
struct IntegerType {
  std::string_view name;  // as TensorType has it
  int64_t block, bytes;   // likewise
  int bits;               // 4 or 8: what a GroupFormat keeps an integer in
  int32_t group;          // elements
  kernels::GroupScales scales;
  bool has_minimum;
  kernels::GroupCodes codes;  // of four bits
  void (*read)(const uint8_t* block, IntegerBlock& out);
};

// Null for types of floats, and of types that are not read.
const IntegerType* FindIntegerType(std::string_view name);

}  // namespace continuo::gguf
