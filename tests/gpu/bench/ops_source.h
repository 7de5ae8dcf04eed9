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
#include "kernels/cuda/cuda_device.h"
#include "kernels/device.h"
#include "tests/gpu/bench/case_runner.h"

namespace continuo {

inline constexpr double kColdBytes = 200e6;  // four times the L2 cache, which has 50 MB on Hopper
inline constexpr char kReading[] = "read of 4 GiB";

// Returns the number of copies of a call's inputs.
inline int CopiesOf(double bytes) {
  return std::max(1, static_cast<int>(std::ceil(kColdBytes / bytes)));
}

// Returns the name of the ceiling of products of a type.
inline std::string PeakOf(kernels::WeightType type) {
  const bool own = type == kernels::WeightType::kF16 || type == kernels::WeightType::kFp8;
  return std::string("peak ") + NameOf(own ? type : kernels::WeightType::kBF16);
}

// A type of KV cache.
struct KvType {
  std::string name;
  kernels::DType dtype;
};
inline const KvType kKvTypes[] = {{"", kernels::DType::kBF16},
                                  {" fp16", kernels::DType::kF16},
                                  {" int8", kernels::DType::kI8},
                                  {" fp8", kernels::DType::kF8}};
// Returns the type of queries, keys and values beside it.
inline kernels::DType NumberOf(const KvType& type) {
  return type.dtype == kernels::DType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
}

// ops_bench's cases and their arguments. Each file that adds cases is about one noun.
class OpsSource : public CaseSource {
 public:
  // `cuda` is the device if it is a CUDA device, else null: cases that need more than a Device are
  // then left out.
  OpsSource(std::unique_ptr<kernels::Device> backend, kernels::cuda::CudaDevice* cuda,
            std::string device)
      : b(*backend), cuda(cuda), device_(std::move(backend)), device_name_(std::move(device)) {}

  kernels::Device& device() override { return b; }
  std::string device_name() const override { return device_name_; }
  std::span<const Case> cases() const override { return cases_; }
  void Wait() override {
    EndOnFailure(b.Synchronize());
    for (const kernels::SampledToken& sampled : sampled_) {
      if (sampled.token_id < 0)
        EndOnFailure(absl::InternalError("the device left a sample to the host"));
    }
  }
  void KeepArguments() override { num_kept_ = arguments_.size(); }
  void FreeArguments() override {
    sampled_ = {};
    for (size_t i = num_kept_; i < arguments_.size(); ++i) b.Free(arguments_[i]);
    for (void* data : host_arguments_) b.FreeHost(data);
    arguments_.resize(num_kept_);
    host_arguments_.clear();
  }

  static void Check(cudaError_t error) {
    if (error != cudaSuccess) EndOnFailure(absl::InternalError(cudaGetErrorString(error)));
  }

  kernels::Tensor Zeros(kernels::DType dtype, std::array<int64_t, 3> shape);
  // Returns numbers in [-1, 1) of a small generator, the same in every run; for other types any
  // bytes.
  kernels::Tensor Random(kernels::DType dtype, std::array<int64_t, 3> shape);
  kernels::Tensor Ints(const std::vector<int32_t>& values, int64_t cols = 1);
  kernels::Tensor Slots(int64_t begin, int64_t end);
  // Returns memory for the tokens that the case's calls sample, where the host sees them.
  std::span<kernels::SampledToken> Sampled(size_t n);

  Case& Add(Case c) { return cases_.emplace_back(std::move(c)); }
  // Adds a case that moves bytes only: calls of `make`, which is called once for each copy of
  // `cold` bytes.
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

  kernels::Device& b;
  kernels::cuda::CudaDevice* const cuda;

 private:
  const std::vector<uint8_t>& Pattern(kernels::DType dtype);

  const std::unique_ptr<kernels::Device> device_;
  const std::string device_name_;
  std::vector<Case> cases_;
  std::map<kernels::DType, std::vector<uint8_t>> patterns_;
  std::span<kernels::SampledToken> sampled_;
  std::vector<void*> arguments_, host_arguments_;
  size_t num_kept_ = 0;
};

// A reading kernel over 4 GiB, a copy, a memset, and the largest product of each type.
void AddCeilings(OpsSource& source);
void AddRows(OpsSource& source);       // ops on rows, and on keys and values
void AddChains(OpsSource& source);     // chains of few kernels with one row
void AddProducts(OpsSource& source);   // dense products of models' shapes, beside cuBLASLt
void AddExperts(OpsSource& source);    // of Qwen3-30B-A3B
void AddAttention(OpsSource& source);  // decode beside a dense cache, and prefill
void AddSamples(OpsSource& source);

}  // namespace continuo
