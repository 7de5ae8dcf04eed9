// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

constexpr int64_t kRows = 4096, kHidden = 4096, kInner = 14336, kHead = 128, kKvHeads = 8;
constexpr double kElements = kRows * kHidden;

kernels::PagedKv CacheOf(OpsSource& s, const KvType& type) {
  kernels::PagedKv kv;
  kv.block_size = 16;
  kv.cache = s.Zeros(type.dtype,
                     {kRows / 16, kKvHeads, 2 * 16 * kernels::KvRowElements(type.dtype, kHead)});
  return kv;
}
double CacheBytes(const KvType& type) {
  return 2.0 * kKvHeads * kRows * static_cast<double>(kernels::KvRowElements(type.dtype, kHead)) *
         static_cast<double>(kernels::SizeOf(type.dtype));
}

void AddKeysAndValues(OpsSource& s, const KvType& type) {
  const double read = 2.0 * kKvHeads * kRows * kHead * 2;  // keys and values
  const auto keys = [=, &s] { return s.Random(NumberOf(type), {kRows, kKvHeads * kHead, 1}); };
  const double bytes = read + CacheBytes(type);
  s.Add("rows", "WriteKv, rows " + std::to_string(kRows) + type.name, bytes, bytes, [=, &s] {
    const kernels::Tensor k = keys(), v = keys(), slots = s.Slots(0, kRows);
    const kernels::PagedKv kv = CacheOf(s, type);
    return [=, &s] { s.b.ops().attention.WriteKv(kv, k, v, slots); };
  });
  for (const bool norms : {false, true}) {
    const double all = bytes + kElements * 4 + 4.0 * kRows * kHead;  // queries twice, angles
    s.Add("rows",
          std::string("RotateAndWriteKv") + (norms ? " with norms" : "") + ", rows " +
              std::to_string(kRows) + type.name,
          all, all, [=, &s] {
            const kernels::Tensor q = s.Random(NumberOf(type), {kRows, kHidden, 1});
            const kernels::Tensor k = keys(), v = keys(), slots = s.Slots(0, kRows);
            const kernels::PagedKv kv = CacheOf(s, type);
            kernels::HeadRotation how = {
                .eps = 1e-5f,
                .angles = s.Random(kernels::DType::kF32, {kRows, kHead, 1}),
                .head_dim = kHead};
            if (norms) {
              how.q_gain = s.Random(kernels::DType::kF32, {1, kHead, 1});
              how.k_gain = s.Random(kernels::DType::kF32, {1, kHead, 1});
            }
            return [=, &s] { s.b.ops().attention.RotateAndWriteKv(kv, q, k, v, slots, how); };
          });
  }
}

}  // namespace

void AddRows(OpsSource& s) {
  const auto add = [&s](const std::string& name, double bytes, auto make) {
    s.Add("rows", name, bytes, bytes, make);
  };
  const auto hidden = [&s](kernels::DType type) { return s.Random(type, {kRows, kHidden, 1}); };
  add("GatherRows f32, every other row", kElements * 4, [=, &s] {
    std::vector<int32_t> rows;
    for (int i = 0; i < kRows / 2; ++i) rows.push_back(i * 2);
    const kernels::Tensor x = hidden(kernels::DType::kF32), taken = s.Ints(rows);
    const kernels::Tensor out = s.Zeros(kernels::DType::kF32, {kRows / 2, kHidden, 1});
    return [=, &s] { s.b.ops().rows.GatherRows(out, x, taken); };
  });
  add("RmsNorm", kElements * 4, [=, &s] {
    const kernels::Tensor x = hidden(kernels::DType::kBF16),
                          out = s.Zeros(kernels::DType::kBF16, x.shape);
    const kernels::Tensor gain = s.Random(kernels::DType::kF32, {1, kHidden, 1});
    return [=, &s] { s.b.ops().rows.RmsNorm(out, x, gain, 1e-5f); };
  });
  add("AddSum", kElements * 8, [=, &s] {
    const kernels::Tensor x = hidden(kernels::DType::kBF16), sum = hidden(kernels::DType::kF32);
    return [=, &s] { s.b.ops().rows.AddSum(x, sum, kernels::Tensor()); };
  });
  add("AddSumNorm", kElements * 10, [=, &s] {
    const kernels::Tensor x = hidden(kernels::DType::kBF16), sum = hidden(kernels::DType::kF32);
    const kernels::Tensor out = s.Zeros(kernels::DType::kBF16, x.shape);
    const kernels::Tensor gain = s.Random(kernels::DType::kF32, {1, kHidden, 1});
    return [=, &s] { s.b.ops().rows.AddSumNorm(out, x, sum, kernels::Tensor(), gain, 1e-5f); };
  });
  add("SiluMul", 6.0 * kRows * kInner, [=, &s] {
    const kernels::Tensor gate = s.Random(kernels::DType::kBF16, {kRows, kInner, 1});
    const kernels::Tensor up = s.Random(kernels::DType::kBF16, {kRows, kInner, 1});
    return [=, &s] { s.b.ops().rows.GateMul(kernels::GateFunction::kSilu, gate, gate, up); };
  });
  add("Rope", kElements * 4 + 4.0 * kRows * kHead, [=, &s] {
    const kernels::Tensor x = hidden(kernels::DType::kBF16),
                          angles = s.Random(kernels::DType::kF32, {kRows, kHead, 1});
    return [=, &s] { s.b.ops().attention.Rope(x, angles, kHead); };
  });
  for (const KvType& type : kKvTypes) AddKeysAndValues(s, type);
}

// With one row a norm is bound by the gap between two kernels; a product starts meanwhile.
void AddChains(OpsSource& s) {
  constexpr double kWeightBytes = 2.0 * kHidden * kHidden;
  const auto norm = [&s] {
    const kernels::Tensor x = s.Random(kernels::DType::kBF16, {1, kHidden, 1}),
                          out = s.Zeros(kernels::DType::kBF16, x.shape);
    const kernels::Tensor gain = s.Random(kernels::DType::kF32, {1, kHidden, 1});
    return std::pair(out, [=, &s] { s.b.ops().rows.RmsNorm(out, x, gain, 1e-5f); });
  };
  s.Add("chains", "RmsNorm of a row", 8.0 * kHidden, kColdBytes, [=] { return norm().second; });
  s.Add("chains", "RmsNorm, MatMuls 8B o", 12.0 * kHidden + kWeightBytes, kWeightBytes, [=, &s] {
    const auto [x, make_x] = norm();
    const kernels::Product product[] = {
        {s.Zeros(kernels::DType::kBF16, x.shape),
         {s.Random(kernels::DType::kBF16, {kHidden, kHidden, 1}), kernels::WeightFormat::kDense},
         kernels::Tensor()}};
    return [=, &s] {
      make_x();
      s.b.ops().matmul.MatMuls(x, product);
    };
  });
}

}  // namespace continuo
