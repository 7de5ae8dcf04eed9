// SPDX-License-Identifier: Apache-2.0
// A GroupFormat says what the integers of a packed matrix mean. This file has no functions, since
// files that are compiled for one instruction set include it.
#pragma once

#include <stdint.h>

namespace continuo::kernels {

// How the scales of groups are kept, and their minima.
enum class GroupScales : uint8_t {
  kF32,
  kF16,
  kShared,  // whole numbers from -128 to 127, times an f16 that the groups of a unit share
};

// GroupCodes say what four bits stand for.
enum class GroupCodes : uint8_t {
  kIntegers,  // the integers from -8 to 7, or with a minimum from 0 to 15
  kIq4,       // kIq4Integers, of ggml's IQ4_NL and IQ4_XS
  kFp4,       // kFp4Integers: twice the numbers of FP4 (E2M1)
};

inline constexpr int8_t kIq4Integers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};
// The ninth is -0 in FP4.
inline constexpr int8_t kFp4Integers[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

// The elements of a row that a kInt8Panels or kInt4Panels matrix keeps as integers of groups. A
// group has one scale: an element is scale · integer, with integers from -128 to 127, of int4 those
// of the codes. Or it has a scale and a minimum: an element is scale · integer + minimum, both
// rounded. Groups and units begin anew in each K split.
struct GroupFormat {
  int32_t size = 0;  // elements of a group, a multiple of 8; 0: the device's own groups
  int32_t unit = 0;  // elements whose scales lie together, a multiple of `size`
  GroupScales scales = GroupScales::kF32;
  bool has_minimum = false;                  // then codes are kIntegers
  GroupCodes codes = GroupCodes::kIntegers;  // of int4

  friend bool operator==(const GroupFormat&, const GroupFormat&) = default;
};

}  // namespace continuo::kernels
