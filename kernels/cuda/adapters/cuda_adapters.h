// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/adapters/adapter_ops.h"
#include "kernels/cuda/runtime/cuda_context.h"

namespace continuo::kernels::cuda {

// AdapterOps of one CUDA device: a kernel for every kMaxAdapterGroups groups of an op.
class CudaAdapterOps : public AdapterOps {
 public:
  // context outlives the object.
  explicit CudaAdapterOps(CudaContext& context) : context_(context) {}

 private:
  void DoShrink(Tensor inner, Tensor x, Tensor rows, std::span<const ShrinkGroup> groups,
                std::span<const int64_t> split_begin) override;
  void DoExpand(Tensor out, Tensor inner, Tensor rows,
                std::span<const ExpandGroup> groups) override;

  CudaContext& context_;
};

}  // namespace continuo::kernels::cuda
