// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weights.h"

namespace continuo::model {

// The rows and columns of a stored tensor that a rank takes. A vector has one column.
struct WeightPart {
  Range rows, columns;
};

WeightPart PartOf(const WeightSpec& spec, const Shard& shard, const ModelConfig& config);

// The K splits of the part's columns, as MatMulSplitK takes them.
std::vector<int64_t> SplitsOf(const WeightSpec& spec, const Shard& shard, const WeightPart& part);

// A rank's part of a stored tensor, in the order of the model's rows. Any thread may read.
class WeightSource {
 public:
  // The arguments outlive the object. The tensor has passed CheckWeights.
  WeightSource(const StoredTensor& stored, const WeightSpec& spec, const WeightPart& part);

  // The stored bytes of the part's row, from its first column in the file on. Of a tensor that is
  // neither quantised nor stored by columns.
  const uint8_t* Row(int64_t row) const;
  // True if the rank's rows lie in the file as they do in memory of this type.
  bool HasBytesOf(kernels::DType dtype) const;
  // Converts rows [begin, begin + n) to `out`, on the device's host threads. InvalidArgument where
  // an element overflows fp16.
  absl::Status Read(int64_t begin, int64_t n, kernels::DType dtype, uint8_t* out,
                    kernels::Device& device) const;
  // Reads the integers of rows [begin, begin + n), on the device's host threads. `groups` are what
  // FindStoredGroups gives for the tensor.
  void ReadGroups(int64_t begin, int64_t n, const StoredGroups& groups, GroupRows& out,
                  kernels::Device& device) const;

 private:
  int64_t StoredRow(int64_t row) const;
  bool RowsAreInOrder() const;
  // Converts the rank's rows [row, row + n). False where an element overflows fp16.
  bool Convert(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out, int64_t row_bytes) const;
  // The same of rows that are stored as columns. Memory is read in the order in which it lies.
  bool ConvertTurned(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                     int64_t row_bytes) const;
  // The same of heads whose rows are stored as columns, of any type.
  bool ConvertTurnedHeads(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                          int64_t row_bytes) const;
  // The same of columns that are stored in another order of heads.
  bool ConvertTiled(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                    int64_t row_bytes) const;

  const StoredTensor& stored_;
  const StoredType* const type_;  // null where it is quantised
  const std::string& name_;
  const RowOrder& order_;
  const WeightPart& part_;
  const int64_t columns_;
};

}  // namespace continuo::model
