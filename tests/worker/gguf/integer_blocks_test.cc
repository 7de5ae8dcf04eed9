// SPDX-License-Identifier: Apache-2.0
// A block's integers, scales and minima give the values that blocks.h decodes, to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "services/base/random.h"
#include "services/worker/gguf/blocks.h"
#include "services/worker/gguf/tensor_types.h"

namespace continuo::gguf {
namespace {

struct Decoded {
  std::string name;
  void (*decode)(const uint8_t* block, float* out);
};

const Decoded kDecoded[] = {{"Q4_0", DecodeQ40},   {"Q4_1", DecodeQ41},     {"Q5_0", DecodeQ50},
                            {"Q5_1", DecodeQ51},   {"Q8_0", DecodeQ80},     {"Q2_K", DecodeQ2K},
                            {"Q3_K", DecodeQ3K},   {"Q4_K", DecodeQ4K},     {"Q5_K", DecodeQ5K},
                            {"Q6_K", DecodeQ6K},   {"IQ4_NL", DecodeIq4Nl}, {"IQ4_XS", DecodeIq4Xs},
                            {"MXFP4", DecodeMxfp4}};

// The value of element i, as IntegerBlock defines it.
float Value(const IntegerType& type, const IntegerBlock& block, int64_t i) {
  float scale = block.scales[i / type.group];
  float minimum = type.has_minimum ? block.minima[i / type.group] : 0;
  if (type.scales == kernels::GroupScales::kShared) {
    scale *= block.shared_scale;
    if (type.has_minimum) minimum *= block.shared_minimum;
  }
  const float product = scale * static_cast<float>(block.integers[i]);
  return type.has_minimum ? product + minimum : product;
}

TEST(IntegerBlocksTest, ValuesAreThoseOfTheBlock) {
  SplitMix64 random(1);
  for (const Decoded& one : kDecoded) {
    const IntegerType* const type = FindIntegerType(one.name);
    ASSERT_NE(type, nullptr) << one.name;
    for (int round = 0; round < 2000; ++round) {
      // Any bytes: half of the blocks have scales that are no numbers or very small ones.
      std::vector<uint8_t> bytes(static_cast<size_t>(type->bytes));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
      float values[256];
      one.decode(bytes.data(), values);
      IntegerBlock block;
      type->read(bytes.data(), block);
      for (int64_t i = 0; i < type->block; ++i) {
        const float value = Value(*type, block, i);
        if (std::isnan(values[i])) {
          ASSERT_TRUE(std::isnan(value)) << one.name << " element " << i;
        } else {
          ASSERT_EQ(value, values[i]) << one.name << " element " << i;
        }
        if (type->codes != kernels::GroupCodes::kIntegers) {
          ASSERT_EQ(type->bits, 4);
          const bool is_iq4 = type->codes == kernels::GroupCodes::kIq4;
          ASSERT_NE(std::ranges::count(is_iq4 ? kernels::kIq4Integers : kernels::kFp4Integers,
                                       block.integers[i]),
                    0);
          continue;
        }
        const int lowest = type->bits == 8 ? -128 : type->has_minimum ? 0 : -8;
        const int highest = type->bits == 8 ? 127 : type->has_minimum ? 15 : 7;
        ASSERT_GE(block.integers[i], lowest) << one.name;
        ASSERT_LE(block.integers[i], highest) << one.name;
      }
      for (int64_t group = 0; group < type->block / type->group; ++group) {
        if (type->scales != kernels::GroupScales::kShared) continue;
        ASSERT_GE(block.scales[group], -128) << one.name;
        ASSERT_LE(block.scales[group], 127) << one.name;
        ASSERT_EQ(block.scales[group], std::trunc(block.scales[group])) << one.name;
      }
    }
  }
}

TEST(IntegerBlocksTest, TypesHaveTheSizesOfTheirBlocks) {
  int known = 0;
  for (uint32_t id = 0; id < 64; ++id) {
    const TensorType* const stored = FindTensorType(id);
    const IntegerType* const type = stored == nullptr ? nullptr : FindIntegerType(stored->name);
    if (type == nullptr) continue;
    ++known;
    EXPECT_EQ(type->block, stored->block) << stored->name;
    EXPECT_EQ(type->bytes, stored->bytes) << stored->name;
  }
  EXPECT_EQ(known, std::size(kDecoded));
  for (const char* name : {"F32", "F16", "BF16", "Q8_K", "IQ1_S", ""}) {
    EXPECT_EQ(FindIntegerType(name), nullptr) << name;
  }
}

}  // namespace
}  // namespace continuo::gguf
