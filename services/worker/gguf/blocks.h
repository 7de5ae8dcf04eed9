// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

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

}  // namespace continuo::gguf
