// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/device.h"
#include "tests/kernels/host_tensor.h"
#include "tests/kernels/kv_bytes.h"

namespace continuo::testing {

// Sequences with keys and values in a paged cache whose blocks are shuffled; cells that belong to
// nobody hold NaN. The cache is of q's type, or of bytes.
class PagedCase {
 public:
  struct Sequence {
    int64_t kv_len;
    int64_t rows;  // the last ones of kv_len
  };

  PagedCase(std::vector<Sequence> sequences, kernels::AttentionParams params, kernels::DType type,
            uint64_t seed, int64_t block_size, std::optional<kernels::DType> kept = std::nullopt)
      : sequences_(std::move(sequences)), params_(params) {
    Random random(seed);
    const int64_t width = int64_t{params.num_kv_heads} * params.head_dim;
    int64_t num_blocks = 2, max_blocks = 0, rows = 0;
    for (const Sequence& s : sequences_) {
      const int64_t blocks = (s.kv_len + block_size - 1) / block_size;
      num_blocks += blocks;
      max_blocks = std::max(max_blocks, blocks);
      rows += s.rows;
    }
    // Inputs are made first, so that they do not depend on the block size.
    q_ = HostTensor(type, rows, int64_t{params.num_heads} * params.head_dim);
    for (int64_t i = 0; i < q_.tensor().size(); ++i) q_.Set(i, random.Value());
    for (const Sequence& s : sequences_) {
      keys_.push_back(HostTensor::Of(type, s.kv_len, width, random));
      values_.push_back(HostTensor::Of(type, s.kv_len, width, random));
      kept_keys_.push_back(keys_.back().matrix());
      kept_values_.push_back(values_.back().matrix());
    }
    std::vector<int32_t> order(num_blocks);
    for (int64_t i = 0; i < num_blocks; ++i) order[i] = static_cast<int32_t>(i);
    for (int64_t i = num_blocks; i > 1; --i) {
      std::swap(order[i - 1], order[random.Below(static_cast<int>(i))]);
    }
    const kernels::DType cache_type = kept.value_or(type);
    const int64_t half = block_size * kernels::KvRowElements(cache_type, params.head_dim);
    cache_ = HostTensor::Poisoned(cache_type, num_blocks * params.num_kv_heads * 2, half);
    std::vector<int32_t> tables(sequences_.size() * max_blocks, -1), lengths, begins = {0};
    int64_t next = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      for (int64_t p = 0; p < sequences_[i].kv_len; ++p) {
        if (p % block_size == 0) tables[i * max_blocks + p / block_size] = order[next++];
        const int64_t block = tables[i * max_blocks + p / block_size];
        for (int head = 0; head < params.num_kv_heads; ++head) {
          const int64_t row = (block * params.num_kv_heads + head) * 2;
          Write(cache_.Rows(row, row + 1), p % block_size, block_size, keys_[i], p, head,
                kept_keys_[i]);
          Write(cache_.Rows(row + 1, row + 2), p % block_size, block_size, values_[i], p, head,
                kept_values_[i]);
        }
      }
      lengths.push_back(static_cast<int32_t>(sequences_[i].kv_len));
      begins.push_back(begins.back() + static_cast<int32_t>(sequences_[i].rows));
    }
    tables_ = HostTensor::OfInts(tables, std::max<int64_t>(max_blocks, 1));
    lengths_ = HostTensor::OfInts(lengths);
    begins_ = HostTensor::OfInts(begins);
    kv_.cache = cache_;
    kv_.cache.shape = {num_blocks, params.num_kv_heads, 2 * half};
    kv_.block_size = static_cast<int>(block_size);
    kv_.block_tables = tables_;
    kv_.kv_len = lengths_;
    kv_.query_begin = begins_;
    kv_.num_decodes = kernels::CountDecodes(begins);
  }

  const kernels::PagedKv& kv() const { return kv_; }
  const HostTensor& q() const { return q_; }
  const kernels::AttentionParams& params() const { return params_; }

  HostTensor Run(kernels::Device& device) const {
    HostTensor out =
        HostTensor::Poisoned(q_.tensor().dtype, q_.tensor().rows(), q_.tensor().cols());
    device.ops().attention.PagedAttention(out, q_, kv_, params_);
    return out;
  }

  // Computes the same rows, at most `chunk` of each sequence at a time.
  HostTensor RunInChunks(kernels::Device& device, int64_t chunk) const {
    HostTensor out =
        HostTensor::Poisoned(q_.tensor().dtype, q_.tensor().rows(), q_.tensor().cols());
    int64_t first = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const auto [kv_len, rows] = sequences_[i];
      for (int64_t r = 0; r < rows; r += chunk) {
        const int64_t n = std::min(chunk, rows - r);
        kernels::PagedKv kv = kv_;
        const HostTensor length = HostTensor::OfInts({static_cast<int32_t>(kv_len - rows + r + n)});
        const HostTensor begin = HostTensor::OfInts({0, static_cast<int32_t>(n)});
        kv.kv_len = length;
        kv.query_begin = begin;
        kv.num_decodes = n == 1 ? 1 : 0;
        kv.block_tables = tables_.Rows(static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
        device.ops().attention.PagedAttention(out.Rows(first + r, first + r + n),
                                              q_.Rows(first + r, first + r + n), kv, params_);
      }
      first += rows;
    }
    return out;
  }

  Matrix Reference() const {
    Matrix out;
    int64_t first = 0;
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const auto [kv_len, rows] = sequences_[i];
      const Matrix part = ReferenceAttention(ToMatrix(q_.Rows(first, first + rows)), kept_keys_[i],
                                             kept_values_[i], rows, kv_len, params_);
      out.insert(out.end(), part.begin(), part.end());
      first += rows;
    }
    return out;
  }

  // Returns the reference of some rows.
  Matrix Reference(const std::vector<int64_t>& rows) const {
    Matrix out;
    for (const int64_t row : rows) {
      int64_t first = 0;
      size_t i = 0;
      while (row >= first + sequences_[i].rows) first += sequences_[i++].rows;
      const int64_t position = sequences_[i].kv_len - sequences_[i].rows + row - first;
      const Matrix part = ReferenceAttention(ToMatrix(q_.Rows(row, row + 1)), kept_keys_[i],
                                             kept_values_[i], 1, position + 1, params_);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

 private:
  // Puts one head's elements of row p of `from` where a block's `half` keeps position `offset`. For
  // bytes, `kept` gets the values that they stand for.
  void Write(kernels::Tensor half, int64_t offset, int64_t block_size, const HostTensor& from,
             int64_t p, int head, Matrix& kept) const {
    const int64_t dim = params_.head_dim, first = p * from.tensor().cols() + head * dim;
    std::byte* const to = static_cast<std::byte*>(half.data);
    if (kernels::SizeOf(half.dtype) > 1) {
      const int64_t size = static_cast<int64_t>(kernels::SizeOf(half.dtype));
      std::memcpy(to + offset * dim * size, from.bytes().data() + first * size, dim * size);
      return;
    }
    const std::vector<float> row(kept.begin() + first, kept.begin() + first + dim);
    const KvBytes bytes = ToKvBytes(half.dtype, row);
    std::memcpy(to + offset * dim, bytes.bytes.data(), dim);
    std::copy(bytes.values.begin(), bytes.values.end(), kept.begin() + first);
    std::memcpy(to + block_size * dim + offset * sizeof(float), &bytes.scale, sizeof(float));
  }
  std::vector<Sequence> sequences_;
  kernels::AttentionParams params_;
  HostTensor q_, cache_, tables_, lengths_, begins_;
  std::vector<HostTensor> keys_, values_;
  std::vector<Matrix> kept_keys_, kept_values_;  // what the cache holds of them
  kernels::PagedKv kv_;
};

inline kernels::AttentionParams Heads(int num_heads, int num_kv_heads, int head_dim,
                                      int window = 0) {
  kernels::AttentionParams params;
  params.num_heads = num_heads;
  params.num_kv_heads = num_kv_heads;
  params.head_dim = head_dim;
  params.heads_per_kv_head = num_heads / num_kv_heads;
  params.scale = 0.25f;
  params.window = window;
  return params;
}

}  // namespace continuo::testing
