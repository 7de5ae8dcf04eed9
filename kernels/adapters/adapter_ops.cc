// SPDX-License-Identifier: Apache-2.0
#include "kernels/adapters/adapter_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

bool IsFactor(const Tensor& t) { return t.dtype == DType::kF32 || t.dtype == DType::kBF16; }

// Checks that the groups are ascending ranges of the entries, whose rows are there.
template <typename Group>
void CheckEntries(std::span<const Group> groups, std::span<const int32_t> rows, const Tensor& inner,
                  int64_t num_rows) {
  CONTINUO_CHECK(inner.dtype == DType::kF32);
  CONTINUO_CHECK(inner.rows() == static_cast<int64_t>(rows.size()));
  int64_t end = 0;
  for (const Group& group : groups) {
    CONTINUO_CHECK(group.begin >= end && group.end >= group.begin && group.end <= inner.rows());
    end = group.end;
    for (int64_t i = group.begin; i < group.end; ++i) {
      const int32_t row = rows[static_cast<size_t>(i)];
      CONTINUO_CHECK(row >= 0 && row < num_rows);
    }
  }
}

}  // namespace

void AdapterOps::Shrink(Tensor inner, Tensor x, std::span<const int32_t> rows,
                        std::span<const ShrinkGroup> groups, std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(IsActivation(x.dtype));
  CheckEntries(groups, rows, inner, x.rows());
  CheckSplits(split_begin, x.cols());
  for (const ShrinkGroup& group : groups) {
    CONTINUO_CHECK(IsFactor(group.a) && group.a.rows() == x.cols());
    CONTINUO_CHECK(group.a.cols() <= inner.cols());
  }
  if (!groups.empty() && inner.size() > 0) DoShrink(inner, x, rows, groups, split_begin);
}

void AdapterOps::Expand(Tensor out, Tensor inner, std::span<const int32_t> rows,
                        std::span<const ExpandGroup> groups) {
  CONTINUO_CHECK(IsActivation(out.dtype));
  CheckEntries(groups, rows, inner, out.rows());
  for (const ExpandGroup& group : groups) {
    if (group.b.size() == 0) continue;
    CONTINUO_CHECK(IsFactor(group.b) && group.b.cols() == out.cols());
    CONTINUO_CHECK(group.first >= 0 && group.first + group.b.rows() <= inner.cols());
  }
  if (!groups.empty() && out.size() > 0) DoExpand(out, inner, rows, groups);
}

}  // namespace continuo::kernels
