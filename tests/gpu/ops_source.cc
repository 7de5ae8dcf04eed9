// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ops_source.h"

#include "kernels/bfloat16.h"

namespace continuo {

Tensor OpsSource::Zeros(DType dtype, std::array<int64_t, 3> shape) {
  Tensor t = {nullptr, dtype, shape};
  auto data = b.Allocate(t.bytes());
  EndOnFailure(data.status());
  t.data = *data;
  arguments_.push_back(t.data);
  return t;
}

Tensor OpsSource::Random(DType dtype, std::array<int64_t, 3> shape) {
  const Tensor t = Zeros(dtype, shape);
  const std::vector<uint8_t>& host = Pattern(dtype);
  const auto size = static_cast<int64_t>(SizeOf(dtype));
  const int64_t n = static_cast<int64_t>(host.size()) / size;
  for (int64_t begin = 0; begin < t.size(); begin += n) {
    Tensor part = t;
    part.data = static_cast<char*>(t.data) + begin * size;
    part.shape = {1, std::min(n, t.size() - begin), 1};
    b.CopyIn(part, host.data());
  }
  EndOnFailure(b.Synchronize());
  return t;
}

const std::vector<uint8_t>& OpsSource::Pattern(DType dtype) {
  constexpr int kElements = 8 << 20;
  std::vector<uint8_t>& bytes = patterns_[dtype];
  if (!bytes.empty()) return bytes;
  uint32_t seed = 1;
  for (int i = 0; i < kElements; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
    const uint16_t narrow = dtype == DType::kF16 ? ToF16(value) : ToBF16(value);
    const auto* from = dtype == DType::kF32 ? reinterpret_cast<const uint8_t*>(&value)
                                            : reinterpret_cast<const uint8_t*>(&narrow);
    bytes.insert(bytes.end(), from, from + SizeOf(dtype));
  }
  return bytes;
}

Tensor OpsSource::Ints(const std::vector<int32_t>& values, int64_t cols) {
  const Tensor t = Zeros(DType::kI32, {static_cast<int64_t>(values.size()) / cols, cols, 1});
  b.CopyIn(t, values.data());
  EndOnFailure(b.Synchronize());
  return t;
}

Tensor OpsSource::Slots(int64_t begin, int64_t end) {
  std::vector<int32_t> slots(static_cast<size_t>(end - begin));
  std::iota(slots.begin(), slots.end(), static_cast<int32_t>(begin));
  return Ints(slots);
}

std::span<DrawnToken> OpsSource::Drawn(size_t n) {
  auto memory = b.AllocateHost(n * sizeof(DrawnToken));
  EndOnFailure(memory.status());
  host_arguments_.push_back(*memory);
  return drawn_ = {static_cast<DrawnToken*>(*memory), n};
}

}  // namespace continuo
