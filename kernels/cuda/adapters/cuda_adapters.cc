// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/adapters/cuda_adapters.h"

#include <algorithm>

#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/runtime/dispatch.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Calls call(job) for the groups of an op, as many at a time as a launch takes. Groups without
// entries are left out.
template <typename Group, typename Describe, typename Call>
void ForJobs(Tensor rows, std::span<const Group> groups, Describe describe, Call call) {
  AdapterJob job = {.rows = Data<const int32_t>(rows)};
  for (const Group& group : groups) {
    if (group.begin == group.end) continue;
    AdapterGroup& to = job.groups[job.num_groups];
    to = {.begin = group.begin, .end = group.end};
    if (!describe(group, to)) continue;
    if (++job.num_groups < kMaxAdapterGroups) continue;
    call(job);
    job.num_groups = 0;
  }
  if (job.num_groups > 0) call(job);
}

}  // namespace

void CudaAdapterOps::DoShrink(Tensor inner, Tensor x, Tensor rows,
                              std::span<const ShrinkGroup> groups,
                              std::span<const int64_t> split_begin) {
  AdapterSplits splits = {.count = static_cast<int>(split_begin.size()) - 1};
  CONTINUO_CHECK(splits.count <= kMaxAdapterSplits);
  std::ranges::copy(split_begin, splits.begin);
  const auto describe = [](const ShrinkGroup& group, AdapterGroup& to) {
    to.factors = group.a.data;
    to.is_bf16 = group.a.dtype == DType::kBF16;
    to.width = static_cast<int>(group.a.cols());
    return true;
  };
  ForJobs(rows, groups, describe, [&](const AdapterJob& job) {
    context_.Enqueue("Shrink", [&] {
      return WithType(x.dtype, [&]<typename T>() {
        return ShrinkAdapters(Data<float>(inner), inner.cols(), Data<const T>(x), x.cols(), job,
                              splits, context_.kernels());
      });
    });
  });
}

void CudaAdapterOps::DoExpand(Tensor out, Tensor inner, Tensor rows,
                              std::span<const ExpandGroup> groups) {
  const auto describe = [](const ExpandGroup& group, AdapterGroup& to) {
    to.factors = group.b.data;
    to.is_bf16 = group.b.dtype == DType::kBF16;
    to.width = static_cast<int>(group.b.rows());
    to.first = group.first;
    to.factor = group.factor;
    to.column = group.column;
    to.columns = group.b.cols();
    return group.b.size() > 0;
  };
  ForJobs(rows, groups, describe, [&](const AdapterJob& job) {
    context_.Enqueue("Expand", [&] {
      return WithType(out.dtype, [&]<typename T>() {
        return ExpandAdapters(Data<T>(out), out.cols(), Data<const float>(inner), inner.cols(), job,
                              context_.kernels());
      });
    });
  });
}

}  // namespace continuo::kernels::cuda
