// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "kernels/math/bfloat16.h"
#include "tests/kernels/cuda/cases/ops_cases.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/kv_bytes.h"

// The changes of queries, keys and values before attention, on a Device whose memory the host does
// not read. The cases run on whatever is linked: the shim or a device.
namespace continuo::testing {

// Sizes of a step's keys and values, and of the cache that they go to.
struct KvSizes {
  int64_t rows, kv_heads, head_dim;
  int block_size;
  int64_t num_blocks() const { return rows / block_size + 4; }
};

// A cache without anything in it.
class EmptyKv {
 public:
  EmptyKv(const KvSizes& s, kernels::DType type)
      : cache_(HostTensor::Poisoned(type, s.num_blocks() * s.kv_heads,
                                    2 * s.block_size * kernels::KvRowElements(type, s.head_dim))) {
    kv_.cache = cache_;
    kv_.cache.shape = {s.num_blocks(), s.kv_heads, cache_.tensor().cols()};
    kv_.block_size = s.block_size;
  }
  const kernels::PagedKv& kv() const { return kv_; }
  const HostTensor& cache() const { return cache_; }

 private:
  HostTensor cache_;
  kernels::PagedKv kv_;
};

// Returns a slot for each row, all different, in random order.
inline std::vector<int32_t> ShuffledSlots(const KvSizes& s, Random& random) {
  std::vector<int32_t> slots(static_cast<size_t>(s.num_blocks() * s.block_size));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
  for (size_t i = slots.size(); i > 1; --i) {
    std::swap(slots[i - 1], slots[static_cast<size_t>(random.Below(static_cast<int>(i)))]);
  }
  slots.resize(static_cast<size_t>(s.rows));
  return slots;
}

// Writes bytes as WriteKv defines them.
inline void WriteKvBytes(const kernels::PagedKv& kv, const HostTensor& from, int which,
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

// What is written is what the CPU writes or, for types that it does not write, as bytes are
// defined. Other slots stay.
inline void CheckWriteKv(kernels::Device& b, kernels::Device& cpu, const KvSizes& s) {
  Random random(9);
  const std::vector<int32_t> slots = ShuffledSlots(s, random);
  const HostTensor host_slots = HostTensor::OfInts(slots);
  for (const kernels::DType type : kActivations) {
    const int64_t width = s.kv_heads * s.head_dim;
    HostTensor k = HostTensor::Of(type, s.rows, width, random);
    HostTensor v = HostTensor::Of(type, s.rows, width, random, 3);
    for (int64_t i = 0; i < s.head_dim; ++i) {
      v.Set(s.head_dim + i, 0);  // a row of zeros
      v.Set(2 * s.head_dim + i, (i % 2 == 0 ? 1 : -1) * 0x1p-101f);
    }
    k.Set(5, INFINITY);  // no byte has a scale for this row
    const DeviceTensor keys(b, k), values(b, v), to(b, host_slots);
    for (const kernels::DType cache_type : kCacheTypes) {
      if (!b.ops().attention.SupportsKvType(cache_type, type)) continue;
      const EmptyKv empty(s, cache_type);
      const kernels::PagedKv& kv = empty.kv();
      const DeviceTensor device_cache(b, kv.cache);
      kernels::PagedKv device_kv = kv;
      device_kv.cache = device_cache;
      b.ops().attention.WriteKv(device_kv, keys, values, to);
      const HostTensor pairs = HostTensor::OfInts({3, 2, 2, 0}, 2);
      const DeviceTensor device_pairs(b, pairs);
      b.ops().attention.CopyKvBlocks(device_kv, device_pairs);
      if (cache_type != kernels::DType::kF8) {
        // Numbers of f16 are as good to the CPU, which copies f16 itself.
        const bool widens = type == kernels::DType::kF16 && cache_type != kernels::DType::kF16;
        cpu.ops().attention.WriteKv(kv, widens ? As(kernels::DType::kF32, k) : k,
                                    widens ? As(kernels::DType::kF32, v) : v, host_slots);
      } else {
        WriteKvBytes(kv, k, 0, slots);
        WriteKvBytes(kv, v, 1, slots);
      }
      cpu.ops().attention.CopyKvBlocks(kv, pairs);
      EXPECT_TRUE(device_cache.Get().bytes() == empty.cache().bytes())
          << NameOf(type) << " to type " << static_cast<int>(cache_type);
    }
  }
}

// Heads in float64 after a norm, if any, and the rotation. `errors` bounds the device's error
// before it rounds the result: the norm is rounded, too.
struct RotatedHeads {
  RotatedHeads(const HostTensor& x, const HostTensor* gain, const HostTensor& angles, float eps,
               int64_t head_dim)
      : values(x.matrix()), errors(values.size(), 0.0) {
    const kernels::DType type = x.tensor().dtype;
    const int64_t rows = x.tensor().rows(), cols = x.tensor().cols();
    const int64_t n = angles.tensor().cols() / 2;
    const Matrix by = angles.matrix();
    if (gain != nullptr) {
      values = ReferenceRmsNorm(values, gain->matrix(), eps);
      const double least = type == kernels::DType::kF16 ? 0x1p-25 : 0;
      for (size_t i = 0; i < values.size(); ++i) {
        errors[i] = std::fabs(values[i]) * (RmsNormError(head_dim) + RoundingOf(type)) + least;
      }
    }
    // The errors of two products and a sum.
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t head = 0; head < cols; head += head_dim) {
        for (int64_t i = 0; i < n; ++i) {
          const size_t low = static_cast<size_t>(r * cols + head + i), high = low + n;
          const double cos = std::fabs(by[r * 2 * n + i]), sin = std::fabs(by[r * 2 * n + n + i]);
          const double low_error = errors[low] + std::fabs(values[low]) * 2 * 0x1p-24;
          const double high_error = errors[high] + std::fabs(values[high]) * 2 * 0x1p-24;
          errors[low] = low_error * cos + high_error * sin;
          errors[high] = high_error * cos + low_error * sin;
        }
      }
    }
    values = ReferenceRope(values, by, rows, cols, head_dim);
    for (double& e : errors) e *= 1.02;  // the result is rounded with its error
  }
  Matrix values, errors;
};

// One head's key or value in a cache.
struct KeptRow {
  KeptRow(const HostTensor& cache, const KvSizes& s, int32_t slot, int64_t head, int which) {
    const kernels::DType type = cache.tensor().dtype;
    const int64_t block = slot / s.block_size, offset = slot % s.block_size;
    const int64_t half = s.block_size * kernels::KvRowElements(type, s.head_dim);
    const size_t size = kernels::SizeOf(type);
    const std::byte* const from = cache.bytes().data() + ((block * s.kv_heads + head) * 2 + which) *
                                                             half * static_cast<int64_t>(size);
    if (size > 1) {
      const HostTensor row(type, 1, s.head_dim);
      std::memcpy(row.tensor().data, from + offset * s.head_dim * static_cast<int64_t>(size),
                  row.bytes().size());
      values = row.matrix();
      return;
    }
    float kept = 0;
    std::memcpy(&kept, from + s.block_size * s.head_dim + offset * sizeof(float), sizeof(kept));
    scale = kept;
    for (int64_t i = 0; i < s.head_dim; ++i) {
      const auto byte = static_cast<uint8_t>(from[offset * s.head_dim + i]);
      values.push_back(scale *
                       (type == kernels::DType::kF8 ? E4M3Value(byte) : static_cast<int8_t>(byte)));
    }
  }
  Matrix values;
  double scale = 0;  // only for bytes
};

// Expects that the cache holds the rotated keys and the unchanged values, each rounded.
inline void ExpectKept(const HostTensor& cache, const KvSizes& s, const std::vector<int32_t>& slots,
                       const RotatedHeads& keys, const HostTensor& v) {
  const kernels::DType cache_type = cache.tensor().dtype, type = v.tensor().dtype;
  const Matrix all_values = v.matrix();
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t head = 0; head < s.kv_heads; ++head) {
      const auto at = static_cast<size_t>((r * s.kv_heads + head) * s.head_dim);
      const auto dim = static_cast<size_t>(s.head_dim);
      const std::vector<float> value(all_values.begin() + static_cast<int64_t>(at),
                                     all_values.begin() + static_cast<int64_t>(at + dim));
      const KeptRow kept_value(cache, s, slots[static_cast<size_t>(r)], head, 1);
      const KeptRow kept_key(cache, s, slots[static_cast<size_t>(r)], head, 0);
      const bool of_bytes = kernels::SizeOf(cache_type) == 1;
      const double largest_byte = cache_type == kernels::DType::kI8 ? 127 : 448;
      double top = 0, top_error = 0;
      for (size_t i = at; i < at + dim; ++i) {
        const double size = std::fabs(keys.values[i]);
        top = std::max(top, size);
        top_error = std::max(top_error, keys.errors[i] + size * (RoundingOf(type) + 0x1p-23));
      }
      if (of_bytes) {
        ASSERT_NEAR(kept_key.scale, top / largest_byte, top_error / largest_byte);
        const KvBytes bytes = ToKvBytes(cache_type, value);
        ASSERT_EQ(kept_value.scale, static_cast<double>(bytes.scale));
        ASSERT_TRUE(kept_value.values == bytes.values) << "value " << r << ' ' << head;
      }
      for (size_t i = 0; i < dim; ++i) {
        const double expected = keys.values[at + i], size = std::fabs(expected);
        double loss = size * RoundingOf(type) + keys.errors[at + i];
        if (cache_type == kernels::DType::kI8) {
          loss += 0.501 * kept_key.scale;
        } else if (cache_type == kernels::DType::kF8) {  // 3 bits of fraction, or steps of 2^-9
          loss += 1.01 * (size * 0x1p-4 + loss * 0x1p-4 + kept_key.scale * 0x1p-10);
        } else {
          loss += cache_type == type ? 0 : size * RoundingOf(cache_type) * 1.01;
          ASSERT_EQ(kept_value.values[i], static_cast<double>(RoundedTo(cache_type, value[i])));
        }
        loss += type == kernels::DType::kF16 ? 0x1p-25 : 0;
        ASSERT_NEAR(kept_key.values[i], expected, loss) << "key " << r << ' ' << head << ' ' << i;
      }
    }
  }
}

// Returns matrices of as many rows side by side.
inline HostTensor Beside(std::span<const HostTensor* const> parts) {
  const kernels::Tensor first = parts[0]->tensor();
  int64_t cols = 0, begin = 0;
  for (const HostTensor* part : parts) cols += part->tensor().cols();
  const HostTensor all(first.dtype, first.rows(), cols);
  const auto size = static_cast<int64_t>(kernels::SizeOf(first.dtype));
  for (const HostTensor* part : parts) {
    const int64_t width = part->tensor().cols();
    for (int64_t r = 0; r < first.rows(); ++r) {
      std::memcpy(static_cast<std::byte*>(all.tensor().data) + (r * cols + begin) * size,
                  part->bytes().data() + r * width * size, static_cast<size_t>(width * size));
    }
    begin += width;
  }
  return all;
}

// Queries and keys are normed, if asked for, and rotated, and keys and values are written: as
// float64 loops say, and with the bits of the single ops, also where they lie in one matrix.
inline void CheckRotateAndWriteKv(kernels::Device& b, const KvSizes& s, int64_t heads,
                                  int64_t rotated) {
  constexpr float kEps = 1e-6f;
  Random random(34);
  const std::vector<int32_t> slots = ShuffledSlots(s, random);
  const DeviceTensor device_slots(b, HostTensor::OfInts(slots));
  for (const kernels::DType type : kActivations) {
    const HostTensor q = HostTensor::Of(type, s.rows, heads * s.head_dim, random);
    const HostTensor k = HostTensor::Of(type, s.rows, s.kv_heads * s.head_dim, random);
    const HostTensor v = HostTensor::Of(type, s.rows, s.kv_heads * s.head_dim, random);
    const HostTensor angles = HostTensor::Of(kernels::DType::kF32, s.rows, rotated, random, 0.5f);
    const HostTensor q_gain = HostTensor::Of(kernels::DType::kF32, 1, s.head_dim, random);
    const HostTensor k_gain = HostTensor::Of(kernels::DType::kF32, 1, s.head_dim, random);
    const DeviceTensor device_v(b, v), device_angles(b, angles);
    const DeviceTensor device_q_gain(b, q_gain), device_k_gain(b, k_gain);
    for (const bool with_norm : {false, true}) {
      kernels::HeadRotation rotation = {
          .eps = kEps, .angles = device_angles, .head_dim = static_cast<int>(s.head_dim)};
      if (with_norm) {
        rotation.q_gain = device_q_gain;
        rotation.k_gain = device_k_gain;
      }
      const RotatedHeads queries(q, with_norm ? &q_gain : nullptr, angles, kEps, s.head_dim);
      const RotatedHeads keys(k, with_norm ? &k_gain : nullptr, angles, kEps, s.head_dim);
      for (const kernels::DType cache_type : kCacheTypes) {
        if (!b.ops().attention.SupportsKvType(cache_type, type)) continue;
        SCOPED_TRACE(::testing::Message()
                     << NameOf(type) << " to " << static_cast<int>(cache_type) << ", " << s.rows
                     << " rows, heads of " << s.head_dim << ", norm " << with_norm);
        const EmptyKv empty(s, cache_type);
        std::vector<HostTensor> to_queries, caches;
        enum class Way { kJoinedOp, kOneMatrix, kSingleOps };
        for (const Way way : {Way::kJoinedOp, Way::kOneMatrix, Way::kSingleOps}) {
          if (way == Way::kOneMatrix && !b.ops().attention.TakesJoinedHeads()) continue;
          const DeviceTensor device_cache(b, empty.kv().cache), to_k(b, k);
          const DeviceTensor to_q(b, way == Way::kOneMatrix
                                         ? HostTensor::Poisoned(type, s.rows, heads * s.head_dim)
                                         : q);
          kernels::PagedKv kv = empty.kv();
          kv.cache = device_cache;
          if (way == Way::kJoinedOp) {
            b.ops().attention.RotateAndWriteKv(kv, to_q, to_k, device_v, device_slots, rotation);
          } else if (way == Way::kOneMatrix) {
            const DeviceTensor qkv(b, Beside(std::array{&q, &k, &v}));
            b.ops().attention.RotateJoinedAndWriteKv(kv, to_q, qkv, device_slots, rotation);
          } else {
            if (with_norm) {
              b.ops().rows.RmsNorm(to_q, to_q, device_q_gain, kEps);
              b.ops().rows.RmsNorm(to_k, to_k, device_k_gain, kEps);
            }
            b.ops().attention.Rope(to_q, device_angles, rotation.head_dim);
            b.ops().attention.Rope(to_k, device_angles, rotation.head_dim);
            b.ops().attention.WriteKv(kv, to_k, device_v, device_slots);
          }
          to_queries.push_back(to_q.Get());
          caches.push_back(device_cache.Get());
        }
        ExpectNear(to_queries[0], queries.values, RoundingOf(type), queries.errors);
        ExpectKept(caches[0], s, slots, keys, v);
        for (size_t i = 1; i < caches.size(); ++i) {
          EXPECT_TRUE(to_queries[0].SameBits(to_queries[i]));
          EXPECT_TRUE(caches[0].SameBits(caches[i]));
        }
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Returns the numbers that decide how a device rounds to e4m3: all of bf16 up to the largest, or
// the e4m3 numbers, the middles between them and the neighbours of these. There is no -0.
inline std::vector<float> NumbersToRound(kernels::DType type) {
  std::vector<float> numbers = {0};
  const auto add = [&](float size) {
    if (size == 0) return;
    numbers.push_back(size);
    numbers.push_back(-size);
  };
  if (type == kernels::DType::kBF16) {
    for (uint32_t bits = 1; bits <= kernels::ToBF16(448.0f); ++bits) {
      add(kernels::FromBF16(static_cast<uint16_t>(bits)));
    }
    return numbers;
  }
  for (uint8_t byte = 0; byte < 0x7e; ++byte) {
    const auto low = static_cast<float>(E4M3Value(byte)),
               high = static_cast<float>(E4M3Value(static_cast<uint8_t>(byte + 1)));
    const float middle = low + (high - low) / 2;
    for (const float size : {low, std::nextafter(middle, 0.0f), middle,
                             std::nextafter(middle, 500.0f), std::nextafter(high, 0.0f)}) {
      add(size);
    }
  }
  return numbers;
}

// A device rounds to e4m3 as it is defined, whatever instructions it has. Each row's largest number
// is 448, so that its scale is 1, and nothing is rotated.
inline void CheckRoundingToE4M3(kernels::Device& b) {
  constexpr int64_t kHeads = 8, kDim = 128;
  Random random(35);
  for (const kernels::DType type : {kernels::DType::kBF16, kernels::DType::kF32}) {
    const std::vector<float> numbers = NumbersToRound(type);
    const auto a_row = kHeads * (kDim - 1);
    const KvSizes s = {.rows = (static_cast<int64_t>(numbers.size()) + a_row - 1) / a_row,
                       .kv_heads = kHeads,
                       .head_dim = kDim,
                       .block_size = 16};
    HostTensor x(type, s.rows, kHeads * kDim);
    auto number = numbers.begin();
    for (int64_t i = 0; i < s.rows * kHeads * kDim; ++i) {
      x.Set(i, i % kDim == kDim - 1 ? 448.0f : number == numbers.end() ? 1.0f : *number++);
    }
    ASSERT_TRUE(number == numbers.end());
    HostTensor angles(kernels::DType::kF32, s.rows, kDim);
    for (int64_t i = 0; i < s.rows * kDim; ++i) angles.Set(i, i % kDim < kDim / 2 ? 1 : 0);
    const std::vector<int32_t> slots = ShuffledSlots(s, random);
    const EmptyKv expected(s, kernels::DType::kF8);
    const DeviceTensor device_angles(b, angles), device_slots(b, HostTensor::OfInts(slots));
    for (const bool joined : {false, true}) {
      const DeviceTensor cache(b, expected.kv().cache), q(b, x), k(b, x), v(b, x);
      kernels::PagedKv kv = expected.kv();
      kv.cache = cache;
      if (joined) {
        b.ops().attention.RotateAndWriteKv(kv, q, k, v, device_slots,
                                           {.angles = device_angles, .head_dim = kDim});
      } else {
        b.ops().attention.WriteKv(kv, k, v, device_slots);
      }
      const EmptyKv host(s, kernels::DType::kF8);
      WriteKvBytes(host.kv(), x, 0, slots);
      WriteKvBytes(host.kv(), x, 1, slots);
      EXPECT_TRUE(cache.Get().bytes() == host.cache().bytes())
          << NameOf(type) << ", joined " << joined;
    }
  }
}

// Heads are 16-byte aligned or not, and rotated as a whole or in part; bytes of a cache are aligned
// where blocks are even.
inline void CheckRotateAndWriteKvs(kernels::Device& b) {
  for (const int64_t head_dim : {16, 64, 96, 128, 256}) {
    CheckRotateAndWriteKv(b, {.rows = 5, .kv_heads = 2, .head_dim = head_dim, .block_size = 16}, 3,
                          head_dim);
  }
  for (const auto& [head_dim, rotated] : std::vector<std::array<int64_t, 2>>{
           {128, 128}, {64, 64}, {40, 40}, {96, 24}, {256, 256}, {20, 20}, {8, 8}}) {
    CheckRotateAndWriteKv(b, {.rows = 6, .kv_heads = 2, .head_dim = head_dim, .block_size = 5}, 3,
                          rotated);
  }
}

}  // namespace continuo::testing
