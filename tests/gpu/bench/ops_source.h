// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime_api.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/bench/case_runner.h"

namespace continuo {

inline constexpr double kColdBytes = 200e6;  // the second-level cache, 50 MB on Hopper, four times
inline constexpr char kReading[] = "read of 4 GiB";

// So many copies of what a call reads.
inline int CopiesOf(double bytes) {
  return std::max(1, static_cast<int>(std::ceil(kColdBytes / bytes)));
}

// The ceiling of products of a type.
inline std::string PeakOf(kernels::WeightType type) {
  const bool own = type == kernels::WeightType::kF16 || type == kernels::WeightType::kFp8;
  return std::string("peak ") + NameOf(own ? type : kernels::WeightType::kBF16);
}

// Of a KV cache.
struct KvType {
  std::string name;
  kernels::DType dtype;
};
inline const KvType kKvTypes[] = {{"", kernels::DType::kBF16},
                                  {" fp16", kernels::DType::kF16},
                                  {" int8", kernels::DType::kI8},
                                  {" fp8", kernels::DType::kF8}};
// Of queries, keys and values beside it.
inline kernels::DType NumberOf(const KvType& type) {
  return type.dtype == kernels::DType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
}

// ops_bench's cases and their arguments. Each file that adds cases has one noun.
class OpsSource : public CaseSource {
 public:
  // `cuda` is the backend where that is of a CUDA device, else null: then what is not the Backend's
  // is left out.
  OpsSource(std::unique_ptr<kernels::Backend> backend, kernels::cuda::CudaBackend* cuda,
            std::string device)
      : b(*backend), cuda(cuda), backend_(std::move(backend)), device_(std::move(device)) {}

  kernels::Backend& backend() override { return b; }
  std::string device() const override { return device_; }
  std::span<const Case> cases() const override { return cases_; }
  void Wait() override {
    EndOnFailure(b.Synchronize());
    for (const kernels::DrawnToken& drawn : drawn_) {
      if (drawn.token_id < 0) EndOnFailure(absl::InternalError("the device left a draw"));
    }
  }
  void KeepArguments() override { num_kept_ = arguments_.size(); }
  void FreeArguments() override {
    drawn_ = {};
    for (size_t i = num_kept_; i < arguments_.size(); ++i) b.Free(arguments_[i]);
    for (void* data : host_arguments_) b.FreeHost(data);
    arguments_.resize(num_kept_);
    host_arguments_.clear();
  }

  static void Check(cudaError_t error) {
    if (error != cudaSuccess) EndOnFailure(absl::InternalError(cudaGetErrorString(error)));
  }

  kernels::Tensor Zeros(kernels::DType dtype, std::array<int64_t, 3> shape);
  // Numbers in [-1, 1) of a small generator, the same in every run; of other types any bytes.
  kernels::Tensor Random(kernels::DType dtype, std::array<int64_t, 3> shape);
  kernels::Tensor Ints(const std::vector<int32_t>& values, int64_t cols = 1);
  kernels::Tensor Slots(int64_t begin, int64_t end);
  // What the case's calls draw, where the host sees it.
  std::span<kernels::DrawnToken> Drawn(size_t n);

  Case& Add(Case c) { return cases_.emplace_back(std::move(c)); }
  // Of bytes alone: calls of `make`, which is asked for as many as there are to be copies of `cold`
  // bytes.
  template <typename Make>
  Case& Add(const std::string& group, const std::string& name, double bytes, double cold,
            Make make) {
    return Add({.group = group,
                .name = name,
                .bytes = bytes,
                .make =
                    [=] {
                      Calls calls;
                      for (int i = 0; i < CopiesOf(cold); ++i) calls.push_back(make());
                      return calls;
                    },
                .ceilings = {kReading}});
  }

  kernels::Backend& b;
  kernels::cuda::CudaBackend* const cuda;

 private:
  const std::vector<uint8_t>& Pattern(kernels::DType dtype);

  const std::unique_ptr<kernels::Backend> backend_;
  const std::string device_;
  std::vector<Case> cases_;
  std::map<kernels::DType, std::vector<uint8_t>> patterns_;
  std::span<kernels::DrawnToken> drawn_;
  std::vector<void*> arguments_, host_arguments_;
  size_t num_kept_ = 0;
};

// A reading kernel over 4 GiB, a copy, a memset, and the largest product of each type.
void AddCeilings(OpsSource& source);
void AddRows(OpsSource& source);       // what is done with rows, and with keys and values
void AddChains(OpsSource& source);     // of few kernels, of one row
void AddProducts(OpsSource& source);   // dense ones, of models' shapes, beside cuBLASLt
void AddExperts(OpsSource& source);    // of Qwen3-30B-A3B
void AddAttention(OpsSource& source);  // decode beside dense, and prefill
void AddDraws(OpsSource& source);

}  // namespace continuo
