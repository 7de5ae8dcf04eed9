// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/matmul_ops.h"
#include "kernels/tensor.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/quantised/matrix.h"

namespace continuo::model {

// A type of element that a checkpoint's weights may be stored in.
struct StoredType {
  std::string_view name;                // as safetensors or GGUF names it
  int64_t block;                        // elements that are stored together
  int64_t bytes;                        // of a block
  std::optional<kernels::DType> dtype;  // the type in memory that has the same bytes, if any
  // Converts the elements [first, first + n) of a row at any address to f32, bf16 or f16. False
  // where a finite element becomes infinite in f16.
  bool (*convert)(void* out, kernels::DType dtype, const uint8_t* row, int64_t first, int64_t n);
};

// Null where weights of this type are not taken. A new stored type is a row of the table behind
// this function.
const StoredType* FindStoredType(std::string_view name);

// The table itself.
std::span<const StoredType> StoredTypes();

// Converts, as StoredType::convert does, the elements [first, first + n) of rows [row, row +
// num_rows) of a quantised matrix; `out` gets one row after the other.
bool ConvertQuantised(void* out, kernels::DType dtype, const quantised::Matrix& matrix, int64_t row,
                      int64_t num_rows, int64_t first, int64_t n);

// "F32, F16, BF16, Q4_0 … and MXFP4"
std::string StoredTypeNames();

// How the integers that a file stores for a matrix are kept (kernels::WeightType::kStored).
struct StoredGroups {
  kernels::WeightFormat format;  // kInt4Panels or kInt8Panels
  kernels::GroupFormat groups;

  friend bool operator==(const StoredGroups&, const StoredGroups&) = default;
};

// Returns the groups of a matrix of the model: those of the file, or a part of each where a K split
// or the order of columns cuts them. They are the same for every number of ranks. Nothing where the
// file has no integers for the matrix, or has them by columns. InvalidArgument names a matrix whose
// groups are cut to less than 8 elements, or whose numbers are no integers of groups.
absl::StatusOr<std::optional<StoredGroups>> FindStoredGroups(const WeightSpec& spec,
                                                             const StoredTensor& stored,
                                                             const ModelConfig& config);

// InvalidArgument where --weights=stored does not fit the files: FindStoredGroups of a matrix,
// experts of a layer that would be kept in different ways, or no matrix at all has integers. The
// files have passed CheckWeights.
absl::Status CheckStored(const ModelConfig& config, const Checkpoint& checkpoint);

// How many matrices of each type --weights=stored keeps, and how: "Q4_K (84 matrices) as int4 in
// groups of 32 with minima"; others "F16 (1 matrix) as fp32". CheckStored has passed.
std::vector<std::string> DescribeStored(const ModelConfig& config, const Checkpoint& checkpoint);

// Rows of integers, for MatMulOps::PackGroups.
class GroupRows {
 public:
  // Makes room for n rows of `columns` elements, a multiple of groups.size.
  void Resize(const kernels::GroupFormat& groups, int64_t n, int64_t columns);
  kernels::GroupedRows view() const;

  std::vector<int8_t> integers;
  std::vector<float> scales, minima;
  std::vector<float> shared_scales, shared_minima;  // of units
  int64_t columns = 0;
};

// Reads the part `columns` of row `row` of a stored tensor into row `to` of `out`. Columns are
// those of the model.
void ReadGroupsOfRow(const StoredTensor& stored, int64_t row, Range columns,
                     const StoredGroups& groups, int64_t to, GroupRows& out);

}  // namespace continuo::model
