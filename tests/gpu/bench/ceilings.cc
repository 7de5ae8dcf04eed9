// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/cublaslt_matmul.h"
#include "tests/gpu/bench/ops_source.h"
#include "tests/gpu/bench/read_memory.h"

namespace continuo {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 30, kCopyBytes = int64_t{1} << 30;
constexpr int64_t kSide = 8192;

int MultiprocessorsOf(int device) {
  int n = 0;
  OpsSource::Check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
  return n;
}

// On a CPU there is no such kernel: one thread reads the same bytes.
std::function<void()> HostReader(kernels::Tensor data) {
  return [=] {
    const auto* words = static_cast<const uint64_t*>(data.data);
    uint64_t all = 0;
    for (size_t i = 0; i < data.bytes() / sizeof(uint64_t); ++i) all ^= words[i];
    asm volatile("" : : "r"(all));
  };
}

Calls Readers(OpsSource& s) {
  const kernels::Tensor data = s.Random(kernels::DType::kBF16, {1, kReadBytes / 2, 1});
  if (s.cuda == nullptr) return {HostReader(data)};
  auto* const sink = static_cast<uint32_t*>(s.Zeros(kernels::DType::kI32, {1, 1, 1}).data);
  const int num_multiprocessors = MultiprocessorsOf(s.cuda->index());
  return {[=, &s] {
    OpsSource::Check(kernels::cuda::ReadMemory(sink, data.data, data.bytes(), num_multiprocessors,
                                               s.cuda->context().kernels()));
  }};
}

void AddPeak(OpsSource& s, kernels::WeightType type) {
  if (!s.b.ops().matmul.SupportsWeights(type)) return;
  const kernels::DType number =
      type == kernels::WeightType::kF16 ? kernels::DType::kF16 : kernels::DType::kBF16;
  s.Add({.group = kCeilings,
         .name = PeakOf(type),
         .bytes = 2.0 * 3 * kSide * kSide,
         .flops = 2.0 * kSide * kSide * kSide,
         .make = [=, &s]() -> Calls {
           const kernels::Tensor x = s.Random(number, {kSide, kSide, 1});
           const kernels::Weight w = {s.Random(number, {kSide, kSide, 1}),
                                      s.b.ops().matmul.FormatOf(type)};
           const kernels::Tensor out = s.Zeros(number, {kSide, kSide, 1});
           return {[=, &s] { s.b.ops().matmul.MatMul(out, x, w, kernels::Tensor()); }};
         }});
}

// The peak of fp8 bytes as they are. MatMul would round bf16 to them first.
void AddFp8Peak(OpsSource& s, bool fast) {
  if (s.cuda == nullptr || !s.b.ops().matmul.SupportsWeights(kernels::WeightType::kFp8)) return;
  s.Add({.group = kCeilings,
         .name = PeakOf(kernels::WeightType::kFp8) + (fast ? " fast" : ""),
         .bytes = 4.0 * kSide * kSide,
         .flops = 2.0 * kSide * kSide * kSide,
         .make = [=, &s]() -> Calls {
           auto made = kernels::cuda::CublasLtMatMul::Make(
               s.cuda->index(), {.deterministic = false, .fp8_fast_accumulation = fast});
           EndOnFailure(made.status());
           const std::shared_ptr<kernels::cuda::CublasLtMatMul> product = *std::move(made);
           const auto has = product->Has({kSide, kSide, kSide, kernels::DType::kF8,
                                          kernels::DType::kBF16, /*has_scales=*/true});
           EndOnFailure(has.status());
           const auto factor = [&] {
             // Any numbers will do; with the scales of Random none is infinite except NaN's bytes.
             const kernels::Tensor bytes = s.Random(kernels::DType::kI8, {kSide, kSide, 1});
             const kernels::Tensor scales = s.Random(kernels::DType::kF32, {kSide, 1, 1});
             return kernels::cuda::Fp8Matrix{
                 static_cast<const uint8_t*>(bytes.data),
                 *has ? static_cast<const float*>(scales.data) : nullptr, kSide, kSide};
           };
           const kernels::cuda::Fp8Matrix x = factor(), w = factor();
           const kernels::Tensor out =
               s.Zeros(*has ? kernels::DType::kBF16 : kernels::DType::kF32, {kSide, kSide, 1});
           return {[=, &s] {
             EndOnFailure(product->Run(out, x, w, s.cuda->context().stream().get()));
           }};
         }});
}

}  // namespace

void AddCeilings(OpsSource& s) {
  s.Add({.group = kCeilings,
         .name = kReading,
         .bytes = static_cast<double>(kReadBytes),
         .make = [&s] { return Readers(s); },
         .is_capturable = s.cuda != nullptr});
  if (s.cuda != nullptr) {
    s.Add({.group = kCeilings,
           .name = "copy of 1 GiB",
           .bytes = 2.0 * kCopyBytes,
           .make = [&s]() -> Calls {
             const kernels::Tensor from = s.Random(kernels::DType::kBF16, {1, kCopyBytes / 2, 1});
             const kernels::Tensor to = s.Zeros(kernels::DType::kBF16, {1, kCopyBytes / 2, 1});
             return {[=, &s] {
               OpsSource::Check(cudaMemcpyAsync(to.data, from.data, kCopyBytes,
                                                cudaMemcpyDeviceToDevice,
                                                s.cuda->context().stream().get()));
             }};
           }});
    s.Add({.group = kCeilings,
           .name = "memset of 1 GiB",
           .bytes = static_cast<double>(kCopyBytes),
           .make = [&s]() -> Calls {
             const kernels::Tensor to = s.Zeros(kernels::DType::kBF16, {1, kCopyBytes / 2, 1});
             return {[=, &s] {
               OpsSource::Check(
                   cudaMemsetAsync(to.data, 1, kCopyBytes, s.cuda->context().stream().get()));
             }};
           }});
  }
  AddPeak(s, kernels::WeightType::kBF16);
  AddPeak(s, kernels::WeightType::kF16);
  AddFp8Peak(s, /*fast=*/false);
  AddFp8Peak(s, /*fast=*/true);
}

}  // namespace continuo
