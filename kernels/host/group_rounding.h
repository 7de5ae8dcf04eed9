// SPDX-License-Identifier: Apache-2.0
// Rounds weights to integers of groups.
#pragma once

#include <cstdint>

#include "kernels/host/group_constants.h"
#include "kernels/tensor.h"

namespace continuo::kernels::host {

// The number of elements of a row of weights that share a scale on CUDA devices; 0: there are no
// scales.
int64_t GroupSize(WeightFormat format);

// Rounds n elements to the integers of int8 (-127 … 127) or int4 (-8 … 7), and returns
// their scale. Elements that are such integers times one scale already, rounded to bf16 or finer,
// keep integers and scale: a checkpoint of the same groups is taken as it is. Others are rounded to
// the nearest, ties to even, with the scale by which the largest becomes ±127 or -8. The scale is
// NaN where an element is not finite, and 0 where all are almost 0; the integers are 0 then.
float RoundGroup(WeightFormat format, const float* x, int64_t n, int32_t* rounded);

// The elements of a group are scale · integer + minimum; both are f16 numbers.
struct ScaleAndMinimum {
  float scale, minimum;
};

// Rounds n elements to integers from 0 to 15. Elements that already are integers times one scale,
// as RoundGroup has it, keep their differences, and so do 0 to 15 times one scale above a minimum
// where both are f16. Others are divided evenly between the least and the largest; scale and
// minimum are then those with the least sum of squared errors. The scale is NaN where an element is
// not finite, or a number beyond f16.
ScaleAndMinimum RoundGroupAboveMinimum(const float* x, int64_t n, int32_t* rounded);

}  // namespace continuo::kernels::host
