// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/kv_bytes.h"

// Ops of a Backend whose memory the host does not read, against their definitions in float64, for
// whatever is linked: the shim or a device. Outputs hold NaN before.
namespace continuo::testing {

// A host tensor's copy on the device, and back.
class DeviceTensor {
 public:
  DeviceTensor(Backend& backend, const Tensor& host) : backend_(backend), tensor_(host) {
    auto data = backend.Allocate(host.bytes());
    CONTINUO_CHECK(data.ok());
    tensor_.data = *data;
    backend.CopyIn(tensor_, host.data);
    CONTINUO_CHECK(backend.Synchronize().ok());
  }
  ~DeviceTensor() { backend_.Free(tensor_.data); }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;

  operator Tensor() const { return tensor_; }  // NOLINT
  Weight weight() const { return {tensor_, WeightFormat::kDense}; }
  HostTensor Get() const {
    HostTensor host(tensor_.dtype, tensor_.shape);
    backend_.CopyOut(host.tensor().data, tensor_);
    const absl::Status status = backend_.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
    return host;
  }

 private:
  Backend& backend_;
  Tensor tensor_;
};

inline constexpr DType kActivations[] = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr DType kCacheTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kI8,
                                        DType::kF8};

// Of those, what rounded weights are multiplied to.
inline constexpr DType kF32AndBF16[] = {DType::kF32, DType::kBF16};
// Of those, what tensor cores take.
inline constexpr DType kNumbers[] = {DType::kBF16, DType::kF16};

// A host tensor in another type.
inline HostTensor As(DType type, const HostTensor& from) {
  HostTensor to(type, from.tensor().shape);
  const Matrix values = from.matrix();
  for (size_t i = 0; i < values.size(); ++i) {
    to.Set(static_cast<int64_t>(i), static_cast<float>(values[i]));
  }
  return to;
}

inline void CheckEmbed(Backend& b) {
  Random random(1);
  const std::vector<int32_t> ids = {10, 14, 9, 15, 12, -1, 1 << 30};
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids));
  for (const DType type : kActivations) {
    for (const DType table_type : kActivations) {
      // f16 becomes f16, and f32 where ranks add up their parts.
      if (table_type == DType::kF16 ? type == DType::kBF16 : type == DType::kF16) continue;
      for (const int64_t cols : {1, 7, 300}) {
        const HostTensor table = HostTensor::Of(table_type, 5, cols, random);
        const DeviceTensor weights(b, table), out(b, HostTensor::Poisoned(type, 7, cols));
        b.Embed(out, weights.weight(), device_ids, /*first_id=*/10, 1.0f);
        const Matrix expected = ReferenceEmbed(table.matrix(), 5, cols, ids, 10);
        const HostTensor got = out.Get();
        ExpectNear(got, expected, RoundingOf(type), {0});
        for (size_t i = 0; i < expected.size(); ++i) {
          if (expected[i] == 0) {
            EXPECT_EQ(std::signbit(got.matrix()[i]), std::signbit(expected[i]));
          }
        }
      }
    }
  }
}

// Every f16 to f32 and back, and every f32 at which rounding to f16 turns.
inline void CheckF16(Backend& b) {
  HostTensor table(DType::kF16, 256, 256);
  for (int i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<uint16_t*>(table.tensor().data) + i, &bits, sizeof(bits));
  }
  std::vector<int32_t> ids(256);
  for (int i = 0; i < 256; ++i) ids[static_cast<size_t>(i)] = i;
  const DeviceTensor device_ids(b, HostTensor::OfInts(ids)), weights(b, table);
  for (const DType type : {DType::kF32, DType::kF16}) {
    const DeviceTensor out(b, HostTensor::Poisoned(type, 256, 256));
    b.Embed(out, weights.weight(), device_ids, 0, 1.0f);
    const Matrix got = out.Get().matrix(), expected = table.matrix();
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        ASSERT_EQ(got[i], expected[i]) << i;
        ASSERT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << i;
      }
    }
  }
  std::vector<float> values = {65519.996f, 65520, 65536, 1e30f, INFINITY, 0x1p-149f};
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const float low = FromF16(static_cast<uint16_t>(bits));
    const float middle = low + (FromF16(static_cast<uint16_t>(bits + 1)) - low) / 2;
    values.insert(values.end(),
                  {low, std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e6f)});
  }
  const auto n = static_cast<int64_t>(values.size());
  for (const float sign : {1.0f, -1.0f}) {
    HostTensor x(DType::kF16, 1, n), sum(DType::kF32, 1, n), expected(DType::kF16, 1, n);
    for (int64_t i = 0; i < n; ++i) {
      const float value = sign * values[static_cast<size_t>(i)];
      x.Set(i, -0.0f);
      sum.Set(i, value);
      expected.Set(i, value);
    }
    const DeviceTensor to(b, x), sums(b, sum);
    b.AddSum(to, sums, Tensor());
    EXPECT_TRUE(to.Get().SameBits(expected)) << sign;
  }
}

inline void CheckRmsNorm(Backend& b, const std::vector<int64_t>& widths) {
  Random random(2);
  for (const DType type : kActivations) {
    for (const int64_t n : widths) {
      const HostTensor x = HostTensor::Of(type, 4, 3 * n, random);
      const HostTensor gain = HostTensor::Of(DType::kF32, 1, n, random);
      const DeviceTensor in(b, x), gains(b, gain), out(b, HostTensor::Poisoned(type, 4, 3 * n));
      b.RmsNorm(out, in, gains, 1e-5f);
      // A thread's multiply-adds and 8 levels of the tree, halved by the root, then a quotient, a
      // sum, a root, a reciprocal and two products.
      const double steps = (static_cast<double>(n) / 256 + 9) / 2 + 6;
      const Matrix expected = ReferenceRmsNorm(x.matrix(), gain.matrix(), 1e-5f);
      ExpectNear(out.Get(), expected, steps * 0x1p-24 + RoundingOf(type), {1e-30});
      b.RmsNorm(in, in, gains, 1e-5f);
      EXPECT_TRUE(in.Get().SameBits(out.Get())) << "in place";
    }
  }
}

inline void CheckAddSum(Backend& b) {
  Random random(3);
  for (const DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t cols : {1, 9, 64, 520}) {
        const HostTensor x = HostTensor::Of(type, 5, cols, random);
        const HostTensor sum = HostTensor::Of(DType::kF32, 5, cols, random, 0.37f);
        const HostTensor bias = HostTensor::Of(DType::kF32, 1, cols, random, 0.11f);
        const DeviceTensor to(b, x), sums(b, sum), biases(b, bias);
        b.AddSum(to, sums, with_bias ? Tensor(biases) : Tensor());
        const Matrix got = to.Get().matrix(), before = x.matrix(), s = sum.matrix();
        for (size_t i = 0; i < got.size(); ++i) {
          float addend = static_cast<float>(s[i]);
          if (with_bias) addend += static_cast<float>(bias.matrix()[i % cols]);
          addend = RoundedTo(type, addend);
          ASSERT_EQ(got[i], RoundedTo(type, static_cast<float>(before[i]) + addend));
        }
      }
    }
  }
}

inline void CheckRope(Backend& b) {
  const std::vector<int32_t> positions = {0, 1, 2, 77, 4095, 131071, 1000003};
  HostTensor frequencies(DType::kF32, 1, 5);
  const float values[] = {1.0f, 0.1f, 0.0123f, 1e-4f, 2.5e-6f};
  for (int i = 0; i < 5; ++i) frequencies.Set(i, values[i]);
  {
    const DeviceTensor p(b, HostTensor::OfInts(positions)), f(b, frequencies);
    const DeviceTensor angles(b, HostTensor::Poisoned(DType::kF32, 7, 10));
    b.RopeAngles(angles, p, f, 1.25f);
    ExpectNear(angles.Get(), ReferenceRopeAngles(positions, frequencies.matrix(), 1.25), 0,
               {0x1.1p-23});
  }
  Random random(5);
  for (const DType type : kActivations) {
    for (const int64_t n : {1, 3, 37, 64}) {
      for (const int64_t rest : {0, 5}) {
        const int64_t head_dim = 2 * n + rest, cols = 3 * head_dim;
        const HostTensor x = HostTensor::Of(type, 4, cols, random);
        const HostTensor angles = HostTensor::Of(DType::kF32, 4, 2 * n, random, 0.5f);
        const DeviceTensor to(b, x), by(b, angles);
        b.Rope(to, by, static_cast<int>(head_dim));
        ExpectNear(to.Get(), ReferenceRope(x.matrix(), angles.matrix(), 4, cols, head_dim),
                   RoundingOf(type), {3 * 4 * 0x1p-24});
      }
    }
  }
}

// What is joined has the bits of the single ops.
inline void CheckAddSumNorm(Backend& b, const std::vector<int64_t>& widths) {
  Random random(33);
  for (const DType type : kActivations) {
    for (const bool with_bias : {false, true}) {
      for (const int64_t cols : widths) {
        const HostTensor x = HostTensor::Of(type, 5, cols, random);
        const DeviceTensor sum(b, HostTensor::Of(DType::kF32, 5, cols, random, 0.37f));
        const DeviceTensor bias(b, HostTensor::Of(DType::kF32, 1, cols, random, 0.11f));
        const DeviceTensor gain(b, HostTensor::Of(DType::kF32, 1, cols, random));
        const Tensor added = with_bias ? Tensor(bias) : Tensor();
        const DeviceTensor stream(b, x), expected_stream(b, x);
        const DeviceTensor out(b, HostTensor::Poisoned(type, 5, cols));
        const DeviceTensor expected(b, HostTensor::Poisoned(type, 5, cols));
        b.AddSumNorm(out, stream, sum, added, gain, 1e-5f);
        b.AddSum(expected_stream, sum, added);
        b.RmsNorm(expected, expected_stream, gain, 1e-5f);
        EXPECT_TRUE(stream.Get().SameBits(expected_stream.Get())) << cols;
        EXPECT_TRUE(out.Get().SameBits(expected.Get())) << cols;
      }
    }
  }
}

inline void CheckRotateAndWriteKv(Backend& b) {
  constexpr int kHeads = 3, kKvHeads = 2, kBlock = 5, kRows = 6;
  Random random(34);
  for (const DType type : kActivations) {
    for (const DType cache_type : kCacheTypes) {
      if (!b.Keeps(cache_type, type)) continue;
      for (const auto& [head_dim, rotated] : std::vector<std::array<int, 2>>{
               {128, 128}, {64, 64}, {40, 40}, {96, 24}, {256, 256}, {20, 20}, {8, 8}}) {
        for (const bool with_norm : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << NameOf(type) << " to " << static_cast<int>(cache_type) << ' ' << head_dim
                       << " norm " << with_norm);
          const HostTensor q = HostTensor::Of(type, kRows, kHeads * head_dim, random);
          const HostTensor k = HostTensor::Of(type, kRows, kKvHeads * head_dim, random);
          const DeviceTensor v(b, HostTensor::Of(type, kRows, kKvHeads * head_dim, random));
          const DeviceTensor slots(b, HostTensor::OfInts({7, 0, 19, 13, 4, 5}));
          const DeviceTensor angles(b, HostTensor::Of(DType::kF32, kRows, rotated, random, 0.5f));
          const DeviceTensor q_gain(b, HostTensor::Of(DType::kF32, 1, head_dim, random));
          const DeviceTensor k_gain(b, HostTensor::Of(DType::kF32, 1, head_dim, random));
          HeadRotation how = {.eps = 1e-6f, .angles = angles, .head_dim = head_dim};
          if (with_norm) {
            how.q_gain = q_gain;
            how.k_gain = k_gain;
          }
          const int64_t half = kBlock * KvRowElements(cache_type, head_dim);
          const HostTensor cache = HostTensor::Poisoned(cache_type, 4 * kKvHeads, 2 * half);
          Tensor shaped = cache;
          shaped.shape = {4, kKvHeads, 2 * half};
          std::vector<HostTensor> queries, caches;
          for (const bool joined : {true, false}) {
            const DeviceTensor device_cache(b, shaped), to_q(b, q), to_k(b, k);
            PagedKv kv;
            kv.cache = device_cache;
            kv.block_size = kBlock;
            if (joined) {
              b.RotateAndWriteKv(kv, to_q, to_k, v, slots, how);
            } else {
              b.Backend::RotateAndWriteKv(kv, to_q, to_k, v, slots, how);
            }
            queries.push_back(to_q.Get());
            caches.push_back(device_cache.Get());
          }
          EXPECT_TRUE(queries[0].SameBits(queries[1]));
          EXPECT_TRUE(caches[0].SameBits(caches[1]));
        }
      }
    }
  }
}

inline void CheckElements(Backend& b) {
  Random random(6);
  for (const DType type : kActivations) {
    for (const int64_t n : {1, 255, 264, 3072}) {
      const HostTensor gate = HostTensor::Of(type, 2, n, random, 12);
      const HostTensor up = HostTensor::Of(type, 2, n, random);
      const DeviceTensor gates(b, gate), ups(b, up), out(b, HostTensor::Poisoned(type, 2, n));
      // An exponential within 2 ulp, of an argument within 4, then a sum, a quotient, a product.
      b.SiluMul(out, gates, ups);
      ExpectNear(out.Get(), ReferenceSiluMul(gate.matrix(), up.matrix()),
                 RoundingOf(type) * 1.01 + 7 * 0x1p-24, {1e-30});
      b.GeluMul(out, gates, ups);
      // The argument of its exponential is up to 90 where the result matters; there an error of
      // 2^-22 of it is one of 2^-15 of the exponential. The reference loses 2^-52 of 24 in 1 +
      // tanh.
      ExpectNear(out.Get(), ReferenceGeluMul(gate.matrix(), up.matrix()),
                 RoundingOf(type) * 1.01 + 0x1p-15, {0x1p-46});
      b.SiluMul(ups, gates, ups);  // in place
    }
  }
  const HostTensor x = HostTensor::Of(DType::kF32, 3, 333, random, 40);
  for (const float cap : {0.5f, 30.0f}) {
    const DeviceTensor to(b, x);
    b.SoftCap(to, cap);
    ExpectNear(to.Get(), ReferenceSoftCap(x.matrix(), cap), 4 * 0x1p-23, {1e-30});
  }
}

inline void CheckGatherRows(Backend& b) {
  Random random(7);
  const std::vector<int32_t> rows = {5, 0, 0, 3};
  for (const DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, 6, 300, random);
    const DeviceTensor from(b, x), which(b, HostTensor::OfInts(rows));
    const DeviceTensor out(b, HostTensor::Poisoned(type, 4, 300));
    b.GatherRows(out, from, which);
    const Matrix got = out.Get().matrix();
    for (int i = 0; i < 4 * 300; ++i) {
      ASSERT_EQ(got[i], x.matrix()[rows[i / 300] * 300 + i % 300]);
    }
  }
}

// Sums of k products in some order: each partial sum may be rounded.
inline void CheckMatMul(Backend& b, int64_t rows, int64_t columns, int64_t k) {
  SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " x " << k);
  Random random(8);
  for (const DType type : kActivations) {
    const HostTensor x = HostTensor::Of(type, rows, k, random);
    const HostTensor bias = HostTensor::Of(DType::kF32, 1, columns, random);
    for (const DType w_type : kActivations) {
      if (w_type != type && (w_type != DType::kF32 || type != DType::kBF16)) continue;
      const HostTensor w = HostTensor::Of(w_type, columns, k, random);
      const DeviceTensor in(b, x), weights(b, w), biases(b, bias);
      const Matrix exact = ReferenceMatMul(x.matrix(), w.matrix(), {}, rows, columns, k);
      const Matrix biased =
          ReferenceMatMul(x.matrix(), w.matrix(), bias.matrix(), rows, columns, k);
      const double sum_error = static_cast<double>(k + 2) * 4 * static_cast<double>(k) * 0x1p-24;
      for (const DType out_type : {DType::kF32, type}) {
        const DeviceTensor out(b, HostTensor::Poisoned(out_type, rows, columns));
        b.MatMul(out, in, weights.weight(), Tensor());
        ExpectNear(out.Get(), exact, RoundingOf(out_type), {sum_error});
        b.MatMul(out, in, weights.weight(), biases);
        ExpectNear(out.Get(), biased, RoundingOf(out_type), {sum_error + 4 * 0x1p-24});
      }
      const DeviceTensor sum(b, HostTensor::Poisoned(DType::kF32, rows, columns));
      const int64_t begins[] = {0, k / 2, k / 2, k, k};
      b.MatMulPieces(sum, in, weights.weight(), begins);
      ExpectNear(sum.Get(), exact, 0x1p-24, {sum_error});
    }
  }
  // A rank that owns no columns of K.
  const DeviceTensor none(b, HostTensor(DType::kBF16, rows, 0));
  const DeviceTensor no_weights(b, HostTensor(DType::kBF16, columns, 0));
  const DeviceTensor sum(b, HostTensor::Poisoned(DType::kF32, rows, columns));
  const int64_t begins[] = {0, 0};
  b.MatMulPieces(sum, none, no_weights.weight(), begins);
  for (const double value : sum.Get().matrix()) ASSERT_EQ(value, 0);
}

// All ones: a sum that lacks the end of K shows.
inline void CheckOnes(Backend& b, int64_t rows, int64_t columns, int64_t k) {
  const auto ones = [](DType type, int64_t n, int64_t cols) {
    HostTensor t(type, n, cols);
    for (int64_t i = 0; i < n * cols; ++i) t.Set(i, 1);
    return t;
  };
  for (const DType type : kActivations) {
    const DeviceTensor x(b, ones(type, rows, k)), w(b, ones(type, columns, k));
    const DeviceTensor out(b, HostTensor::Poisoned(DType::kF32, rows, columns));
    b.MatMul(out, x, w.weight(), Tensor());
    ExpectNear(out.Get(), Matrix(static_cast<size_t>(rows * columns), static_cast<double>(k)), 0,
               {0});
  }
}

// WriteKv into bytes, as they are defined.
inline void WriteKvBytes(const PagedKv& kv, const HostTensor& from, int which,
                         const std::vector<int32_t>& slots) {
  const int64_t num_heads = kv.cache.shape[1], half = kv.cache.shape[2] / 2;
  const int64_t dim = from.tensor().cols() / num_heads;
  const Matrix matrix = from.matrix();
  const std::vector<float> all(matrix.begin(), matrix.end());
  for (size_t r = 0; r < slots.size(); ++r) {
    const int64_t block = slots[r] / kv.block_size, offset = slots[r] % kv.block_size;
    for (int64_t head = 0; head < num_heads; ++head) {
      const KvBytes row =
          ToKvBytes(kv.cache.dtype, std::span(all).subspan((r * num_heads + head) * dim, dim));
      auto* const to =
          static_cast<uint8_t*>(kv.cache.data) + ((block * num_heads + head) * 2 + which) * half;
      std::memcpy(to + offset * dim, row.bytes.data(), dim);
      std::memcpy(to + kv.block_size * dim + offset * sizeof(float), &row.scale, sizeof(float));
    }
  }
}

// What is written is what the CPU writes, or, of what it does not, as bytes are defined. Other
// places stay.
inline void CheckWriteKv(Backend& b, Backend& cpu) {
  Random random(9);
  for (const DType type : kActivations) {
    for (const DType cache_type : kCacheTypes) {
      if (!b.Keeps(cache_type, type)) continue;
      constexpr int kHeads = 3, kDim = 40, kBlock = 5;
      const int64_t half = kBlock * KvRowElements(cache_type, kDim);
      PagedKv kv;
      const HostTensor cache = HostTensor::Poisoned(cache_type, 4 * kHeads, 2 * half);
      kv.cache = cache;
      kv.cache.shape = {4, kHeads, 2 * half};
      kv.block_size = kBlock;
      HostTensor k = HostTensor::Of(type, 6, kHeads * kDim, random);
      HostTensor v = HostTensor::Of(type, 6, kHeads * kDim, random, 3);
      for (int i = 0; i < kDim; ++i) v.Set(kDim + i, 0);  // a row of zeros
      for (int i = 0; i < kDim; ++i) v.Set(2 * kDim + i, (i % 2 == 0 ? 1 : -1) * 0x1p-101f);
      k.Set(5, INFINITY);  // a row that bytes have no scale for
      const HostTensor slots = HostTensor::OfInts({7, 0, 19, 13, 4, 5});
      const DeviceTensor device_cache(b, kv.cache), keys(b, k), values(b, v), to(b, slots);
      PagedKv device_kv = kv;
      device_kv.cache = device_cache;
      b.WriteKv(device_kv, keys, values, to);
      const HostTensor pairs = HostTensor::OfInts({3, 2, 2, 0}, 2);
      const DeviceTensor device_pairs(b, pairs);
      b.CopyKvBlocks(device_kv, device_pairs);
      if (cache_type != DType::kF8) {
        // What has the numbers of f16 is as good to the CPU, which copies of f16 itself.
        const bool widens = type == DType::kF16 && cache_type != DType::kF16;
        cpu.WriteKv(kv, widens ? As(DType::kF32, k) : k, widens ? As(DType::kF32, v) : v, slots);
      } else {
        WriteKvBytes(kv, k, 0, slots.ints());
        WriteKvBytes(kv, v, 1, slots.ints());
      }
      cpu.CopyKvBlocks(kv, pairs);
      EXPECT_EQ(std::memcmp(device_cache.Get().bytes().data(), cache.bytes().data(),
                            cache.bytes().size()),
                0)
          << NameOf(type) << " to type " << static_cast<int>(cache_type);
    }
  }
}

}  // namespace continuo::testing
