// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "tests/kernels/cuda/device_tensor.h"
#include "tests/kernels/cuda/sampled.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/kv_bytes.h"
#include "tests/kernels/paged_case.h"

// Attention of a Device whose memory the host does not read, against its definition in float64, and
// its bits. The cases run on whatever is linked: the shim or a device. Outputs hold NaN before.
namespace continuo::testing {

// Keys and values in device memory.
class DevicePaged {
 public:
  DevicePaged(kernels::Device& b, const PagedCase& c)
      : cache_(b, c.kv().cache),
        tables_(b, c.kv().block_tables),
        lengths_(b, c.kv().kv_len),
        begins_(b, c.kv().query_begin),
        kv_(c.kv()) {
    kv_.cache = cache_;
    kv_.block_tables = tables_;
    kv_.kv_len = lengths_;
    kv_.query_begin = begins_;
  }
  const kernels::PagedKv& kv() const { return kv_; }
  HostTensor Cache() const { return cache_.Get(); }

 private:
  DeviceTensor cache_, tables_, lengths_, begins_;
  kernels::PagedKv kv_;
};

inline HostTensor AttendOnDevice(kernels::Device& b, const PagedCase& c,
                                 const kernels::PagedKv& kv) {
  const kernels::Tensor q = c.q();
  const DeviceTensor queries(b, q), out(b, HostTensor::Poisoned(q.dtype, q.rows(), q.cols()));
  b.ops().attention.PagedAttention(out, queries, kv, c.params());
  return out.Get();
}

inline HostTensor AttendOnDevice(kernels::Device& b, const PagedCase& c) {
  const DevicePaged paged(b, c);
  return AttendOnDevice(b, c, paged.kv());
}

// A score is a sum of head_dim products of at most 4 each, times the scale. Weights are at most 1
// and sum to 1, and values are at most 2, so an error of e in a score moves the result by at most
// 4e. On tensor cores weights w are rounded to bf16: the last of its 8 significant bits is worth up
// to 2^-7 of a number, so each weight loses up to 2^-8 of itself, which moves the result, Σ w v / Σ
// w with a sum of unrounded weights below, by at most 2^-8 of the largest value. Over bf16 the
// largest weight is 1 and loses nothing. Over bytes weights are rounded times the value's scale, so
// the largest may lose, too. Over f16 they are rounded to f16: 2^-11 of each, and 2^-25 of those
// below its normal numbers. Of sequences with more rows than `most_checked`, that many rows are
// compared.
inline void CheckAttention(kernels::Device& b, std::vector<PagedCase::Sequence> sequences,
                           const kernels::AttentionParams& p, kernels::DType type,
                           int64_t block_size, std::optional<kernels::DType> kept = std::nullopt,
                           int64_t most_checked = kAll) {
  SCOPED_TRACE(::testing::Message()
               << NameOf(type) << ' ' << p.num_heads << '/' << p.num_kv_heads << 'x' << p.head_dim
               << " window " << p.window << " chunk " << p.chunk << " cap " << p.softcap
               << " blocks of " << block_size
               << (kept ? kept == kernels::DType::kI8 ? " int8" : " fp8" : ""));
  int64_t longest = 0;
  Random random(22);
  std::vector<int64_t> rows;
  int64_t first = 0;
  for (const PagedCase::Sequence& s : sequences) {
    longest = std::max(longest, s.kv_len);
    for (const int64_t row : Sampled(s.rows, most_checked, random)) rows.push_back(first + row);
    first += s.rows;
  }
  const PagedCase c(std::move(sequences), p, type, 21, block_size, kept);
  const double score_error = p.head_dim * 4 * p.scale * (p.head_dim + 2.0) * 0x1p-24;
  const bool on_tensor_cores = type != kernels::DType::kF32 && p.head_dim % 8 == 0;
  const double rounding =
      type == kernels::DType::kF16 && !kept ? 0x1p-11 + longest * 0x1p-25 : 0x1p-8;
  const double weight_error = on_tensor_cores ? rounding : 0;
  const HostTensor got = AttendOnDevice(b, c);
  ExpectWritten(got);
  ExpectNear(RowsOf(got, rows), c.Reference(rows), RoundingOf(type),
             {4 * score_error + 2 * weight_error + kernels::kKvChunk * 2 * 0x1p-23});
}

// Prompts beside others, which WgmmaAttention takes or leaves to the other kernels: heads that fill
// a matrix's parts and that do not, tiles of several sequences' rows and of a part of one row's
// heads, and splits.
inline void CheckPromptAttention(kernels::Device& b,
                                 std::optional<kernels::DType> kept = std::nullopt) {
  for (const kernels::DType type : kNumbers) {
    for (const int dim : {64, 128}) {
      CheckAttention(b, {{300, 300}, {3, 3}, {140, 33}}, Heads(4, 2, dim), type, 16, kept);
    }
    for (const int dim : {8, 72, 120}) {
      CheckAttention(b, {{130, 70}, {1, 1}, {257, 2}}, Heads(3, 1, dim), type, 7, kept);
    }
    CheckAttention(b, {{400, 90}}, Heads(2, 2, 128, 130), type, 5, kept);  // a window
    kernels::AttentionParams capped = Heads(4, 2, 64);
    capped.softcap = 5;
    CheckAttention(b, {{200, 60}}, capped, type, 16, kept);
    CheckAttention(b, {{1100, 3}, {5, 2}}, Heads(4, 2, 128, 600), type, 16, kept);  // in splits
    CheckAttention(b, {{4200, 2}, {300, 2}, {9, 2}}, Heads(2, 1, 64), type, 16, kept);
  }
}

// Prompts and decodes whose rows see their own chunk of the context alone: rows on both sides of
// its borders in one tile, chunks within a tile of keys and longer ones, and a window beside them.
inline void CheckChunkedAttention(kernels::Device& b) {
  const std::vector<PagedCase::Sequence> sequences = {
      {101, 1}, {270, 1}, {1, 1}, {300, 137}, {140, 140}};
  for (const auto& [chunk, window] : {std::pair{5, 0}, {64, 0}, {100, 0}, {100, 40}}) {
    for (const int dim : {20, 64, 128}) {
      kernels::AttentionParams params = Heads(6, 2, dim, window);
      params.chunk = chunk;
      CheckAttention(b, sequences, params, kernels::DType::kF32, 7);
      if (dim % 8 != 0) continue;
      for (const kernels::DType type : kNumbers) {
        CheckAttention(b, sequences, params, type, 16);
        CheckAttention(b, sequences, params, type, 16, kernels::DType::kI8);
      }
    }
  }
}

// Attention over 8-bit caches, whose rows are 16-byte aligned or, for other sizes of heads and
// blocks, 4-byte aligned.
inline void CheckAttentionOverBytes(kernels::Device& b, std::vector<PagedCase::Sequence> sequences,
                                    const kernels::AttentionParams& p,
                                    const std::vector<int64_t>& block_sizes,
                                    int64_t most_checked = kAll) {
  for (const kernels::DType type : kNumbers) {
    for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
      for (const int64_t block_size : block_sizes) {
        CheckAttention(b, sequences, p, type, block_size, kept, most_checked);
      }
    }
  }
}

// A case's attention with sinks. The reference reads them on the host.
inline void CheckSinks(kernels::Device& b, std::vector<PagedCase::Sequence> sequences,
                       kernels::AttentionParams p, kernels::DType type, int64_t block_size,
                       std::optional<kernels::DType> kept = std::nullopt) {
  SCOPED_TRACE(::testing::Message() << NameOf(type) << " heads of " << p.head_dim << " window "
                                    << p.window << (kept ? " bytes" : ""));
  std::vector<float> values;
  for (int head = 0; head < p.num_heads; ++head) {
    constexpr float kSinks[] = {0.5f, -90.0f, 3.0f, 300.0f, -1.0f, 6.0f};
    values.push_back(kSinks[head % 6]);
  }
  const HostTensor sinks = HostTensor::OfFloats(values);
  const DeviceTensor device_sinks(b, sinks);
  p.sinks = sinks;
  const PagedCase c(sequences, p, type, 21, block_size, kept);
  p.sinks = device_sinks;
  const PagedCase on_device(sequences, p, type, 21, block_size, kept);
  const HostTensor got = AttendOnDevice(b, on_device);
  ExpectWritten(got);
  const double score_error = p.head_dim * 4 * p.scale * (p.head_dim + 2.0) * 0x1p-24;
  const double weight_error = type == kernels::DType::kF32 ? 0 : 0x1p-8;
  ExpectNear(got, c.Reference(), RoundingOf(type),
             {4 * score_error + 2 * weight_error + kernels::kKvChunk * 2 * 0x1p-23});
}

// Sinks in every kernel: of f32, of decodes, whole and in parts, and of tiles, whole and in splits.
inline void CheckAllSinks(kernels::Device& b) {
  for (const int window : {0, 20}) {
    CheckSinks(b, {{70, 5}, {1, 1}, {130, 1}}, Heads(6, 2, 20, window), kernels::DType::kF32, 7);
    for (const kernels::DType type : kNumbers) {
      for (const int dim : {64, 128, 256}) {
        CheckSinks(b, {{70, 1}, {130, 1}, {1, 1}}, Heads(6, 2, dim, window), type, 16);
        CheckSinks(b, {{70, 35}, {130, 3}, {5, 5}}, Heads(6, 2, dim, window), type, 16);
      }
      for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
        CheckSinks(b, {{70, 1}, {130, 1}}, Heads(6, 2, 64, window), type, 16, kept);
        CheckSinks(b, {{70, 35}, {130, 3}}, Heads(6, 2, 64, window), type, 16, kept);
      }
    }
  }
  for (const kernels::DType type : kNumbers) {
    CheckSinks(b, {{1100, 1}}, Heads(6, 2, 64), type, 16);
    CheckSinks(b, {{1100, 3}, {5, 2}}, Heads(6, 2, 64), type, 16);
  }
}

// A few sizes of heads, types, blocks and splits, small enough for tools that look at every access.
inline void CheckFewShapes(kernels::Device& b) {
  for (const int dim : {64, 128, 256}) {
    for (const int64_t block_size : {16, 7}) {
      const kernels::AttentionParams params = Heads(4, 2, dim);
      for (const kernels::DType type : kNumbers) {
        CheckAttention(b, {{70, 5}, {1, 1}}, params, type, block_size);
      }
      CheckAttentionOverBytes(b, {{70, 5}, {1, 1}}, params, {block_size});
      CheckAttentionOverBytes(b, {{70, 1}, {1, 1}}, params, {block_size});
    }
  }
  for (const kernels::DType type : kNumbers) {
    CheckAttention(b, {{1100, 1}}, Heads(4, 2, 128), type, 16);  // in splits
  }
  CheckAttentionOverBytes(b, {{1100, 1}}, Heads(4, 2, 128), {16, 7});
}

// A key or value with an infinity makes the rows that see it NaN and leaves the others' bits.
// `type` is that of queries.
inline void CheckStrangeKeysAndValues(kernels::Device& b, kernels::DType type) {
  constexpr int kRows = 20, kStrange = 12, kHeads = 2, kDim = 64, kBlock = 16;
  Random random(36);
  const HostTensor finite = HostTensor::Of(type, 1, kDim, random);
  HostTensor strange = finite.Clone();
  strange.Set(3, INFINITY);
  for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
    for (const bool is_key : {true, false}) {
      for (const int window : {0, 4}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(kept) << " key " << is_key << " window " << window);
        const PagedCase c({{kRows, kRows}}, Heads(kHeads, 1, kDim, window), type, 35, kBlock, kept);
        const DevicePaged paged(b, c);
        const Matrix before = AttendOnDevice(b, c, paged.kv()).matrix();
        const int32_t* const table = static_cast<const int32_t*>(c.kv().block_tables.data);
        const DeviceTensor key(b, is_key ? strange : finite), value(b, is_key ? finite : strange);
        const DeviceTensor slots(b, HostTensor::OfInts({table[0] * kBlock + kStrange}));
        b.ops().attention.WriteKv(paged.kv(), key, value, slots);
        const Matrix after = AttendOnDevice(b, c, paged.kv()).matrix();
        for (int64_t i = 0; i < kRows * kHeads * kDim; ++i) {
          const int64_t row = i / (kHeads * kDim);
          if (row >= kStrange && (window == 0 || row < kStrange + window)) {
            ASSERT_TRUE(std::isnan(after[i])) << i;
          } else {
            ASSERT_EQ(after[i], before[i]) << i;
          }
        }
      }
    }
  }
}

// All bytes occur in one value at the only position. Its score is 0 and its weight 1, so results
// are the bytes' numbers times their scale, of which f16 has not all digits. Rows of blocks of 16
// are 16-byte aligned, of 7 4-byte aligned. `type` is that of queries. is_decode: the sequence
// counts as a decode, otherwise as a prompt of one token.
inline void CheckEveryByte(kernels::Device& b, kernels::DType type, float value_scale,
                           bool is_decode) {
  for (const kernels::DType kept : {kernels::DType::kI8, kernels::DType::kF8}) {
    for (const int dim : {64, 128, 256}) {
      for (const int64_t block_size : {16, 7}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(kept) << " heads of " << dim << " blocks of " << block_size
                     << " decode " << is_decode);
        const int heads = 256 / dim;
        const int64_t half = block_size * kernels::KvRowElements(kept, dim);
        const HostTensor cache = HostTensor::Poisoned(kept, heads, 2 * half);
        Matrix expected;
        for (int head = 0; head < heads; ++head) {
          auto* const keys = static_cast<uint8_t*>(cache.tensor().data) + head * 2 * half;
          uint8_t* const values = keys + half;
          const float key_scale = 0;
          std::memset(keys, 0, static_cast<size_t>(dim));
          std::memcpy(keys + block_size * dim, &key_scale, sizeof(float));
          std::memcpy(values + block_size * dim, &value_scale, sizeof(float));
          for (int d = 0; d < dim; ++d) {
            auto byte = static_cast<uint8_t>(head * dim + d);
            if (kept == kernels::DType::kF8 && (byte & 0x7f) == 0x7f)
              byte = 0;  // NaN, which is never written
            values[d] = byte;
            const float number =
                kept == kernels::DType::kF8 ? E4M3Value(byte) : static_cast<int8_t>(byte);
            expected.push_back(RoundedTo(type, number * value_scale));
          }
        }
        Random random(37);
        kernels::Tensor shaped = cache;
        shaped.shape = {1, heads, 2 * half};
        const DeviceTensor device_cache(b, shaped), table(b, HostTensor::OfInts({0}));
        const DeviceTensor length(b, HostTensor::OfInts({1})), begin(b, HostTensor::OfInts({0, 1}));
        const DeviceTensor q(b, HostTensor::Of(type, 1, 256, random));
        const DeviceTensor out(b, HostTensor::Poisoned(type, 1, 256));
        kernels::PagedKv kv;
        kv.cache = device_cache;
        kv.block_size = static_cast<int>(block_size);
        kv.block_tables = table;
        kv.kv_len = length;
        kv.query_begin = begin;
        kv.num_decodes = is_decode ? 1 : 0;
        b.ops().attention.PagedAttention(out, q, kv, Heads(heads, heads, dim));
        EXPECT_EQ(out.Get().matrix(), expected);
      }
    }
  }
}

inline std::vector<int32_t> IntsOf(const kernels::Tensor& host) {
  const auto* const data = static_cast<const int32_t*>(host.data);
  return {data, data + host.size()};
}

// Computes the case's rows, at most `chunk` of one sequence at a time. Tables are as wide as those
// rows need, or have `columns` if that is more; the last ones then name no block.
inline HostTensor AttendInChunks(kernels::Device& b, const PagedCase& c, int64_t chunk,
                                 int64_t columns) {
  const DevicePaged paged(b, c);
  const std::vector<int32_t> lengths = IntsOf(c.kv().kv_len), begins = IntsOf(c.kv().query_begin);
  const std::vector<int32_t> tables = IntsOf(c.kv().block_tables);
  const int64_t width = c.kv().block_tables.cols(), block_size = c.kv().block_size;
  const kernels::Tensor q = c.q();
  HostTensor all = HostTensor::Poisoned(q.dtype, q.rows(), q.cols());
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t row = begins[i]; row < begins[i + 1]; row += chunk) {
      const int64_t end = std::min<int64_t>(row + chunk, begins[i + 1]);
      const int64_t kv_len = lengths[i] - (begins[i + 1] - end);
      const int64_t blocks = (kv_len + block_size - 1) / block_size;
      const auto own = tables.begin() + static_cast<int64_t>(i) * width;
      std::vector<int32_t> table(own, own + blocks);
      table.resize(static_cast<size_t>(std::max(blocks, columns)), -1);
      const DeviceTensor device_table(
          b, HostTensor::OfInts(table, static_cast<int64_t>(table.size())));
      const DeviceTensor length(b, HostTensor::OfInts({static_cast<int32_t>(kv_len)}));
      const DeviceTensor begin(b, HostTensor::OfInts({0, static_cast<int32_t>(end - row)}));
      const DeviceTensor queries(b, c.q().Rows(row, end));
      const DeviceTensor out(b, HostTensor::Poisoned(q.dtype, end - row, q.cols()));
      kernels::PagedKv kv = paged.kv();
      kv.block_tables = device_table;
      kv.kv_len = length;
      kv.query_begin = begin;
      kv.num_decodes = end - row == 1 ? 1 : 0;
      b.ops().attention.PagedAttention(out, queries, kv, c.params());
      const HostTensor got = out.Get();
      std::memcpy(all.Rows(row, end).data, got.bytes().data(), got.bytes().size());
    }
  }
  return all;
}

// With --deterministic a row has the same bits alone, among others, in chunks, in blocks of any
// size and with tables of any width. `columns` are those of 16 positions.
inline void CheckAttentionBits(kernels::Device& b,
                               const std::vector<PagedCase::Sequence>& sequences,
                               const kernels::AttentionParams& params,
                               const std::vector<int64_t>& block_sizes,
                               const std::vector<int64_t>& chunks, int64_t columns) {
  for (const auto& [type, kept] :
       std::vector<std::pair<kernels::DType, std::optional<kernels::DType>>>{
           {kernels::DType::kBF16, {}},
           {kernels::DType::kBF16, kernels::DType::kI8},
           {kernels::DType::kBF16, kernels::DType::kF8},
           {kernels::DType::kF16, {}},
           {kernels::DType::kF16, kernels::DType::kI8},
           {kernels::DType::kF16, kernels::DType::kF8}}) {
    SCOPED_TRACE(::testing::Message()
                 << NameOf(type) << " heads of " << params.head_dim
                 << (kept ? kept == kernels::DType::kI8 ? " int8" : " fp8" : ""));
    const PagedCase whole(sequences, params, type, 23, /*block_size=*/16, kept);
    const HostTensor expected = AttendOnDevice(b, whole);
    for (const int64_t block_size : block_sizes) {
      const PagedCase c(sequences, params, type, 23, block_size, kept);
      EXPECT_TRUE(AttendOnDevice(b, c).SameBits(expected)) << "blocks of " << block_size;
    }
    for (const int64_t chunk : chunks) {
      for (const int64_t width : {int64_t{0}, columns}) {
        EXPECT_TRUE(AttendInChunks(b, whole, chunk, width).SameBits(expected))
            << chunk << " rows, " << width << " columns";
      }
    }
  }
}

inline void CheckDeterministicAttention(kernels::Device& b) {
  CheckAttentionBits(b, {{150, 90}, {66, 66}, {1, 1}}, Heads(6, 2, 64, 100), {1, 7, 16}, {33}, 20);
  // Sequences cross the borders of splits, which are at multiples of 1,024, and some splits are
  // seen by no row.
  for (const int dim : {40, 64, 128}) {
    CheckAttentionBits(b, {{1100, 3}, {2100, 1}, {1026, 5}}, Heads(2, 1, dim), {7}, {3}, 300);
  }
}

}  // namespace continuo::testing
