// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/network/adapter_layers.h"

#include <algorithm>

#include "services/base/check.h"

namespace continuo::model {

bool AdapterLayers::Changes(int layer, AdapterInput input) const {
  return rows_ != nullptr && std::ranges::any_of(rows_->groups, [&](const AdapterRows::Group& g) {
           return g.layers[static_cast<size_t>(layer)].width_of(input) > 0;
         });
}

void AdapterLayers::Add(int layer, AdapterInput input, kernels::Tensor x,
                        std::initializer_list<Output> outputs) {
  if (!Changes(layer, input)) return;
  const int64_t whole[] = {0, x.cols()};
  const kernels::Tensor inner = Shrink(layer, input, x, whole);
  for (const Output& output : outputs) Expand(layer, output, inner);
}

void AdapterLayers::AddSplitK(int layer, AdaptedMatrix matrix, kernels::Tensor x,
                              std::span<const int64_t> splits, kernels::Tensor sum) {
  const AdapterInput input = InputOf(matrix);
  if (!Changes(layer, input)) return;
  const kernels::Tensor inner = Shrink(layer, input, x, splits);
  comm_.AllReduceSum(inner);
  Expand(layer, {matrix, sum}, inner);
}

kernels::Tensor AdapterLayers::Shrink(int layer, AdapterInput input, kernels::Tensor x,
                                      std::span<const int64_t> splits) {
  shrink_groups_.clear();
  int width = 0;
  for (const AdapterRows::Group& group : rows_->groups) {
    const AdapterLayer& own = group.layers[static_cast<size_t>(layer)];
    kernels::Tensor a = own.a_of(input);
    // Without a matrix the entries become zeros.
    if (own.width_of(input) == 0) a = {nullptr, kernels::DType::kF32, {x.cols(), 0, 1}};
    width = std::max(width, own.width_of(input));
    shrink_groups_.push_back({group.begin, group.end, a});
  }
  kernels::Tensor inner = inner_;
  inner.shape = {rows_->rows.size(), width, 1};
  CONTINUO_CHECK(inner.size() <= inner_.size());
  device_.ops().adapters->Shrink(inner, x, rows_->rows, shrink_groups_, splits);
  return inner;
}

void AdapterLayers::Expand(int layer, const Output& output, kernels::Tensor inner) {
  expand_groups_.clear();
  for (const AdapterRows::Group& group : rows_->groups) {
    const AdapterLayer::Expansion& own =
        group.layers[static_cast<size_t>(layer)].b_of(output.matrix);
    if (own.b.size() == 0) continue;
    expand_groups_.push_back({group.begin, group.end, own.b, own.first, own.factor, output.column});
  }
  device_.ops().adapters->Expand(output.out, inner, rows_->rows, expand_groups_);
}

}  // namespace continuo::model
