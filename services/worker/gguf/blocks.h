// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/group_format.h"

namespace continuo::gguf {

// These decode one block of a quantised type (tensor_types.h) at any address: `block` has the
// type's bytes, `out` gets its elements in f32. Sums and products are rounded in the order in which
// gguf-py's quants.py has them, so values are equal to its to the bit (exactness:
// stored-quantisation). Layouts are those of the structs block_* of ggml-common.h, little-endian.
void DecodeQ40(const uint8_t* block, float* out);
void DecodeQ41(const uint8_t* block, float* out);
void DecodeQ50(const uint8_t* block, float* out);
void DecodeQ51(const uint8_t* block, float* out);
void DecodeQ80(const uint8_t* block, float* out);
void DecodeQ2K(const uint8_t* block, float* out);
void DecodeQ3K(const uint8_t* block, float* out);
void DecodeQ4K(const uint8_t* block, float* out);
void DecodeQ5K(const uint8_t* block, float* out);
void DecodeQ6K(const uint8_t* block, float* out);
void DecodeIq4Nl(const uint8_t* block, float* out);
void DecodeIq4Xs(const uint8_t* block, float* out);
void DecodeMxfp4(const uint8_t* block, float* out);

// A block as integers of groups, in the order of its elements. An element is scale · integer, or
// scale · integer + minimum, both rounded: what the functions above decode, to the
// bit.
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
