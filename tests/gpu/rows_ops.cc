// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/ops_source.h"

namespace continuo {
namespace {

constexpr int64_t kRows = 4096, kHidden = 4096, kInner = 14336, kHead = 128, kKvHeads = 8;
constexpr double kElements = kRows * kHidden;

PagedKv CacheOf(OpsSource& s, const KvType& type) {
  PagedKv kv;
  kv.block_size = 16;
  kv.cache = s.Zeros(type.dtype, {kRows / 16, kKvHeads, 2 * 16 * KvRowElements(type.dtype, kHead)});
  return kv;
}
double CacheBytes(const KvType& type) {
  return 2.0 * kKvHeads * kRows * static_cast<double>(KvRowElements(type.dtype, kHead)) *
         static_cast<double>(SizeOf(type.dtype));
}

void AddKeysAndValues(OpsSource& s, const KvType& type) {
  const double read = 2.0 * kKvHeads * kRows * kHead * 2;  // keys and values
  const auto keys = [=, &s] { return s.Random(NumberOf(type), {kRows, kKvHeads * kHead, 1}); };
  const double bytes = read + CacheBytes(type);
  s.Add("rows", "WriteKv, rows " + std::to_string(kRows) + type.name, bytes, bytes, [=, &s] {
    const Tensor k = keys(), v = keys(), slots = s.Slots(0, kRows);
    const PagedKv kv = CacheOf(s, type);
    return [=, &s] { s.b.WriteKv(kv, k, v, slots); };
  });
  for (const bool norms : {false, true}) {
    const double all = bytes + kElements * 4 + 4.0 * kRows * kHead;  // queries twice, angles
    s.Add("rows",
          std::string("RotateAndWriteKv") + (norms ? " with norms" : "") + ", rows " +
              std::to_string(kRows) + type.name,
          all, all, [=, &s] {
            const Tensor q = s.Random(NumberOf(type), {kRows, kHidden, 1});
            const Tensor k = keys(), v = keys(), slots = s.Slots(0, kRows);
            const PagedKv kv = CacheOf(s, type);
            HeadRotation how = {.eps = 1e-5f,
                                .angles = s.Random(DType::kF32, {kRows, kHead, 1}),
                                .head_dim = kHead};
            if (norms) {
              how.q_gain = s.Random(DType::kF32, {1, kHead, 1});
              how.k_gain = s.Random(DType::kF32, {1, kHead, 1});
            }
            return [=, &s] { s.b.RotateAndWriteKv(kv, q, k, v, slots, how); };
          });
  }
}

}  // namespace

void AddRows(OpsSource& s) {
  const auto add = [&s](const std::string& name, double bytes, auto make) {
    s.Add("rows", name, bytes, bytes, make);
  };
  const auto hidden = [&s](DType type) { return s.Random(type, {kRows, kHidden, 1}); };
  add("GatherRows f32, every other row", kElements * 4, [=, &s] {
    std::vector<int32_t> rows;
    for (int i = 0; i < kRows / 2; ++i) rows.push_back(i * 2);
    const Tensor x = hidden(DType::kF32), taken = s.Ints(rows);
    const Tensor out = s.Zeros(DType::kF32, {kRows / 2, kHidden, 1});
    return [=, &s] { s.b.GatherRows(out, x, taken); };
  });
  add("RmsNorm", kElements * 4, [=, &s] {
    const Tensor x = hidden(DType::kBF16), out = s.Zeros(DType::kBF16, x.shape);
    const Tensor gain = s.Random(DType::kF32, {1, kHidden, 1});
    return [=, &s] { s.b.RmsNorm(out, x, gain, 1e-5f); };
  });
  add("AddSum", kElements * 8, [=, &s] {
    const Tensor x = hidden(DType::kBF16), sum = hidden(DType::kF32);
    return [=, &s] { s.b.AddSum(x, sum, Tensor()); };
  });
  add("AddSumNorm", kElements * 10, [=, &s] {
    const Tensor x = hidden(DType::kBF16), sum = hidden(DType::kF32);
    const Tensor out = s.Zeros(DType::kBF16, x.shape);
    const Tensor gain = s.Random(DType::kF32, {1, kHidden, 1});
    return [=, &s] { s.b.AddSumNorm(out, x, sum, Tensor(), gain, 1e-5f); };
  });
  add("SiluMul", 6.0 * kRows * kInner, [=, &s] {
    const Tensor gate = s.Random(DType::kBF16, {kRows, kInner, 1});
    const Tensor up = s.Random(DType::kBF16, {kRows, kInner, 1});
    return [=, &s] { s.b.SiluMul(gate, gate, up); };
  });
  add("Rope", kElements * 4 + 4.0 * kRows * kHead, [=, &s] {
    const Tensor x = hidden(DType::kBF16), angles = s.Random(DType::kF32, {kRows, kHead, 1});
    return [=, &s] { s.b.Rope(x, angles, kHead); };
  });
  for (const KvType& type : kKvTypes) AddKeysAndValues(s, type);
}

// Of one row: a norm is bound by what is between two kernels, a product is begun meanwhile.
void AddChains(OpsSource& s) {
  constexpr double kWeightBytes = 2.0 * kHidden * kHidden;
  const auto norm = [&s] {
    const Tensor x = s.Random(DType::kBF16, {1, kHidden, 1}), out = s.Zeros(DType::kBF16, x.shape);
    const Tensor gain = s.Random(DType::kF32, {1, kHidden, 1});
    return std::pair(out, [=, &s] { s.b.RmsNorm(out, x, gain, 1e-5f); });
  };
  s.Add("chains", "RmsNorm of a row", 8.0 * kHidden, kColdBytes, [=] { return norm().second; });
  s.Add("chains", "RmsNorm, MatMuls 8B o", 12.0 * kHidden + kWeightBytes, kWeightBytes, [=, &s] {
    const auto [x, make_x] = norm();
    const Product product[] = {
        {s.Zeros(DType::kBF16, x.shape),
         {s.Random(DType::kBF16, {kHidden, kHidden, 1}), WeightFormat::kDense},
         Tensor()}};
    return [=, &s] {
      make_x();
      s.b.MatMuls(x, product);
    };
  });
}

}  // namespace continuo
