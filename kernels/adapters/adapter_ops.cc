// SPDX-License-Identifier: Apache-2.0
#include "kernels/adapters/adapter_ops.h"

#include "kernels/check_tensor.h"
#include "services/base/check.h"

namespace continuo::kernels {
namespace {

bool IsFactor(const Tensor& t) { return t.dtype == DType::kF32 || t.dtype == DType::kBF16; }

// Checks that the groups are ascending ranges of the entries.
template <typename Group>
void CheckEntries(std::span<const Group> groups, const Tensor& rows, const Tensor& inner) {
  CONTINUO_CHECK(inner.dtype == DType::kF32 && rows.dtype == DType::kI32);
  CONTINUO_CHECK(inner.rows() == rows.size());
  int64_t end = 0;
  for (const Group& group : groups) {
    CONTINUO_CHECK(group.begin >= end && group.end >= group.begin && group.end <= inner.rows());
    end = group.end;
  }
}

}  // namespace

void AdapterOps::Shrink(Tensor inner, Tensor x, Tensor rows, std::span<const ShrinkGroup> groups,
                        std::span<const int64_t> split_begin) {
  CONTINUO_CHECK(IsActivation(x.dtype));
  CheckEntries(groups, rows, inner);
  CheckSplits(split_begin, x.cols());
  for (const ShrinkGroup& group : groups) {
    CONTINUO_CHECK(IsFactor(group.a) && group.a.rows() == x.cols());
    CONTINUO_CHECK(group.a.cols() <= inner.cols());
  }
  if (!groups.empty() && inner.size() > 0) DoShrink(inner, x, rows, groups, split_begin);
}

void AdapterOps::Expand(Tensor out, Tensor inner, Tensor rows,
                        std::span<const ExpandGroup> groups) {
  CONTINUO_CHECK(IsActivation(out.dtype));
  CheckEntries(groups, rows, inner);
  for (const ExpandGroup& group : groups) {
    if (group.b.size() == 0) continue;
    CONTINUO_CHECK(IsFactor(group.b) && group.column >= 0 &&
                   group.column + group.b.cols() <= out.cols());
    CONTINUO_CHECK(group.first >= 0 && group.first + group.b.rows() <= inner.cols());
  }
  if (!groups.empty() && out.size() > 0) DoExpand(out, inner, rows, groups);
}

}  // namespace continuo::kernels
