// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

#include "kernels/math/bfloat16.h"

namespace continuo {

kernels::Tensor OpsSource::Zeros(kernels::DType dtype, std::array<int64_t, 3> shape) {
  kernels::Tensor t = {nullptr, dtype, shape};
  auto data = b.Allocate(t.bytes());
  EndOnFailure(data.status());
  t.data = *data;
  arguments_.push_back(t.data);
  return t;
}

kernels::Tensor OpsSource::Random(kernels::DType dtype, std::array<int64_t, 3> shape) {
  const kernels::Tensor t = Zeros(dtype, shape);
  const std::vector<uint8_t>& host = Pattern(dtype);
  const auto size = static_cast<int64_t>(kernels::SizeOf(dtype));
  const int64_t n = static_cast<int64_t>(host.size()) / size;
  for (int64_t begin = 0; begin < t.size(); begin += n) {
    kernels::Tensor part = t;
    part.data = static_cast<char*>(t.data) + begin * size;
    part.shape = {1, std::min(n, t.size() - begin), 1};
    b.CopyIn(part, host.data());
  }
  EndOnFailure(b.Synchronize());
  return t;
}

const std::vector<uint8_t>& OpsSource::Pattern(kernels::DType dtype) {
  constexpr int kElements = 8 << 20;
  std::vector<uint8_t>& bytes = patterns_[dtype];
  if (!bytes.empty()) return bytes;
  uint32_t seed = 1;
  for (int i = 0; i < kElements; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    const uint16_t narrow =
        dtype == kernels::DType::kF16 ? kernels::ToF16(value) : kernels::ToBF16(value);
    const auto* from = dtype == kernels::DType::kF32 ? reinterpret_cast<const uint8_t*>(&value)
                                                     : reinterpret_cast<const uint8_t*>(&narrow);
    bytes.insert(bytes.end(), from, from + kernels::SizeOf(dtype));
  }
  return bytes;
}

kernels::Tensor OpsSource::Ints(const std::vector<int32_t>& values, int64_t cols) {
  const kernels::Tensor t =
      Zeros(kernels::DType::kI32, {static_cast<int64_t>(values.size()) / cols, cols, 1});
  b.CopyIn(t, values.data());
  EndOnFailure(b.Synchronize());
  return t;
}

kernels::Tensor OpsSource::Slots(int64_t begin, int64_t end) {
  std::vector<int32_t> slots(static_cast<size_t>(end - begin));
  std::iota(slots.begin(), slots.end(), static_cast<int32_t>(begin));
  return Ints(slots);
}

std::span<kernels::SampledToken> OpsSource::Sampled(size_t n) {
  auto memory = b.AllocateHost(n * sizeof(kernels::SampledToken));
  EndOnFailure(memory.status());
  host_arguments_.push_back(*memory);
  return sampled_ = {static_cast<kernels::SampledToken*>(*memory), n};
}

}  // namespace continuo
