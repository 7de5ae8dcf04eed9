// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention_ops.h"
#include "kernels/expert_ops.h"
#include "kernels/matmul_ops.h"
#include "kernels/row_ops.h"
#include "kernels/sampling_ops.h"
#include "kernels/state_ops.h"

namespace continuo::kernels {

class AdapterOps;

// The ops of one device, by group. Each group is a small interface: its public functions check
// shapes and types once for all devices (the group's .cc file) and call a private virtual, which a
// device implements; `Do…` of a joined op has the single ops as its default.
//
// Rules of all ops: they enqueue on the device's queue and return. Matrices are row-major; `rows`
// is the number of tokens of the step. Activations are f32, bf16 or, on devices that compute with
// it, f16. Sums are f32, and rounded to the output's type once, at the end. A row's result does not
// depend on the other rows, their number or the number of threads. A dimension may be 0: nothing
// happens, or zeros are written where the result is a sum over nothing. Arguments that do not fit
// together end the process. No op remembers anything for a later one: what an op prepares for
// another is a value that the caller passes on (MatMulInput, ExpertRoutes::host_expert_begin).
struct Ops {
  MatMulOps& matmul;
  RowOps& rows;
  AttentionOps& attention;
  ExpertOps& experts;
  StateOps& states;
  SamplingOps& sampling;
  AdapterOps* adapters = nullptr;  // null: the device has no adapters
};

}  // namespace continuo::kernels
