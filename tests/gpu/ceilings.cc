// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul.h"
#include "tests/gpu/ops_source.h"
#include "tests/gpu/read_memory.h"

namespace continuo {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 30, kCopyBytes = int64_t{1} << 30;
constexpr int64_t kSide = 8192;

int MultiprocessorsOf(int device) {
  int n = 0;
  OpsSource::Check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
  return n;
}

// On a CPU there is none to compare with: the same bytes, by one thread.
std::function<void()> HostReader(Tensor data) {
  return [=] {
    const auto* words = static_cast<const uint64_t*>(data.data);
    uint64_t all = 0;
    for (size_t i = 0; i < data.bytes() / sizeof(uint64_t); ++i) all ^= words[i];
    asm volatile("" : : "r"(all));
  };
}

Calls Readers(OpsSource& s) {
  const Tensor data = s.Random(DType::kBF16, {1, kReadBytes / 2, 1});
  if (s.cuda == nullptr) return {HostReader(data)};
  auto* const sink = static_cast<uint32_t*>(s.Zeros(DType::kI32, {1, 1, 1}).data);
  const int num_multiprocessors = MultiprocessorsOf(s.cuda->device());
  return {[=, &s] {
    OpsSource::Check(
        cuda::ReadMemory(sink, data.data, data.bytes(), num_multiprocessors, s.cuda->stream()));
  }};
}

void AddPeak(OpsSource& s, WeightType type) {
  if (!s.b.Computes(type)) return;
  const DType number = type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
  s.Add({.group = kCeilings,
         .name = PeakOf(type),
         .bytes = 2.0 * 3 * kSide * kSide,
         .flops = 2.0 * kSide * kSide * kSide,
         .make = [=, &s]() -> Calls {
           const Tensor x = s.Random(number, {kSide, kSide, 1});
           const Weight w = {s.Random(number, {kSide, kSide, 1}), s.b.FormatOf(type)};
           const Tensor out = s.Zeros(number, {kSide, kSide, 1});
           return {[=, &s] { s.b.MatMul(out, x, w, Tensor()); }};
         }});
}

// Of bytes as they are: without making them of bf16 first, as MatMul does.
void AddFp8Peak(OpsSource& s, bool fast) {
  if (s.cuda == nullptr || !s.b.Computes(WeightType::kFp8)) return;
  s.Add({.group = kCeilings,
         .name = PeakOf(WeightType::kFp8) + (fast ? " fast" : ""),
         .bytes = 4.0 * kSide * kSide,
         .flops = 2.0 * kSide * kSide * kSide,
         .make = [=, &s]() -> Calls {
           auto made = cuda::MatMul::Make(s.cuda->device(),
                                          {.deterministic = false, .fp8_fast_accumulation = fast});
           EndOnFailure(made.status());
           const std::shared_ptr<cuda::MatMul> product = *std::move(made);
           const auto has =
               product->Has({kSide, kSide, kSide, DType::kF8, DType::kBF16, /*has_scales=*/true});
           EndOnFailure(has.status());
           const auto factor = [&] {
             // The numbers are any; with the scales of Random none is infinite but NaN's bytes.
             const Tensor bytes = s.Random(DType::kI8, {kSide, kSide, 1});
             const Tensor scales = s.Random(DType::kF32, {kSide, 1, 1});
             return cuda::Fp8Matrix{static_cast<const uint8_t*>(bytes.data),
                                    *has ? static_cast<const float*>(scales.data) : nullptr, kSide,
                                    kSide};
           };
           const cuda::Fp8Matrix x = factor(), w = factor();
           const Tensor out = s.Zeros(*has ? DType::kBF16 : DType::kF32, {kSide, kSide, 1});
           return {[=, &s] { EndOnFailure(product->Run(out, x, w, s.cuda->stream())); }};
         }});
}

}  // namespace

void AddCeilings(OpsSource& s) {
  s.Add({.group = kCeilings,
         .name = kReading,
         .bytes = static_cast<double>(kReadBytes),
         .make = [&s] { return Readers(s); },
         .repeats = s.cuda != nullptr});
  if (s.cuda != nullptr) {
    s.Add({.group = kCeilings,
           .name = "copy of 1 GiB",
           .bytes = 2.0 * kCopyBytes,
           .make = [&s]() -> Calls {
             const Tensor from = s.Random(DType::kBF16, {1, kCopyBytes / 2, 1});
             const Tensor to = s.Zeros(DType::kBF16, {1, kCopyBytes / 2, 1});
             return {[=, &s] {
               OpsSource::Check(cudaMemcpyAsync(to.data, from.data, kCopyBytes,
                                                cudaMemcpyDeviceToDevice, s.cuda->stream()));
             }};
           }});
    s.Add({.group = kCeilings,
           .name = "memset of 1 GiB",
           .bytes = static_cast<double>(kCopyBytes),
           .make = [&s]() -> Calls {
             const Tensor to = s.Zeros(DType::kBF16, {1, kCopyBytes / 2, 1});
             return {[=, &s] {
               OpsSource::Check(cudaMemsetAsync(to.data, 1, kCopyBytes, s.cuda->stream()));
             }};
           }});
  }
  AddPeak(s, WeightType::kBF16);
  AddPeak(s, WeightType::kF16);
  AddFp8Peak(s, /*fast=*/false);
  AddFp8Peak(s, /*fast=*/true);
}

}  // namespace continuo
