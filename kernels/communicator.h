// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/tensor.h"

namespace continuo::kernels {

// Collectives among the ranks of one model replica. Calls enqueue on the rank's Device, and every
// rank makes the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;  // 1, 2, 4 or 8

  // x f32, in place: the ranks' values added in a balanced binary tree over the ranks, so that
  // with MatMulSplitK below it the sum has one order for every number of ranks.
  virtual void AllReduceSum(Tensor x) = 0;
  // out [rows, column_begin.back()]: rank r's `part` becomes columns
  // [column_begin[r], column_begin[r+1]) (size() + 1 entries; parts may be empty).
  virtual void AllGather(Tensor out, Tensor part, std::span<const int64_t> column_begin) = 0;

  // Makes every rank that waits in a collective, now or later, return without a result. Called by
  // any thread when a rank failed.
  virtual void Abort() = 0;
  // Not OK after Abort().
  virtual absl::Status status() const = 0;
};

}  // namespace continuo::kernels
