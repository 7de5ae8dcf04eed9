// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/cpu_attention.h"

#include <cstdint>
#include <cstring>

#include "kernels/cpu/runtime/rows.h"
#include "kernels/math/exact_math.h"
#include "services/base/check.h"

namespace continuo::kernels::cpu {

bool CpuAttention::SupportsKvType(DType type, DType /*activations*/) const {
  return type != DType::kF8 && type != DType::kF16;
}

void CpuAttention::DoRopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) {
  const int64_t n = frequencies.size();
  const auto* const p = static_cast<const int32_t*>(positions.data);
  const auto* const f = static_cast<const float*>(frequencies.data);
  context_.ForRanges(angles.rows(), 64 * n, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = reinterpret_cast<float*>(At(angles, r * 2 * n));
      for (int64_t i = 0; i < n; ++i) {
        const SinCosResult result = SinCos(static_cast<double>(p[r]) * static_cast<double>(f[i]));
        row[i] = static_cast<float>(result.cos) * scale;
        row[n + i] = static_cast<float>(result.sin) * scale;
      }
    }
  });
}

void CpuAttention::DoGrowAngles(Tensor out, Tensor angles, Tensor positions,
                                const QueryGrowth& growth) {
  const int64_t n = angles.cols();
  const auto* const p = static_cast<const int32_t*>(positions.data);
  context_.ForRanges(angles.rows(), 64 + n, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float factor = GrowthAt(p[r] + growth.offset, growth.growth, growth.period);
      const auto* const from = reinterpret_cast<const float*>(At(angles, r * n));
      auto* const to = reinterpret_cast<float*>(At(out, r * n));
      for (int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
    }
  });
}

void CpuAttention::DoRope(Tensor x, Tensor angles, int head_dim) {
  const int64_t n = angles.cols() / 2, cols = x.cols();
  context_.ForRanges(x.rows(), cols, [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, 2 * n);
    for (int64_t r = begin; r < end; ++r) {
      const float* cos = reinterpret_cast<const float*>(At(angles, r * 2 * n));
      for (int64_t at = r * cols; at < (r + 1) * cols; at += head_dim) {
        Read(kernels_, x, at, 2 * n, buffer);
        float* head = Begin(x, at, buffer);
        kernels_.rotate(head, head + n, cos, cos + n, n);
        Finish(kernels_, x, at, 2 * n, head);
      }
    }
  });
}

void CpuAttention::DoWriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) {
  const DType dtype = kv.cache.dtype;
  const int64_t num_heads = kv.cache.shape[1], head_dim = k.cols() / num_heads;
  const int64_t num_slots = kv.cache.shape[0] * kv.block_size;
  const auto* const s = static_cast<const int32_t*>(slots.data);
  context_.ForRanges(k.rows(), 2 * k.cols(), [&](int64_t begin, int64_t end, int thread) {
    float* buffer = context_.Scratch(thread, head_dim);
    for (int64_t r = begin; r < end; ++r) {
      CONTINUO_CHECK(s[r] >= 0 && s[r] < num_slots);
      const int64_t block = s[r] / kv.block_size, offset = s[r] % kv.block_size;
      for (int64_t head = 0; head < num_heads; ++head) {
        for (const int which : {0, 1}) {
          const Tensor& from = which == 0 ? k : v;
          const int64_t element = r * from.cols() + head * head_dim;
          char* const rows = KvRows(kv, block, head, which);
          char* const to = rows + offset * head_dim * static_cast<int64_t>(SizeOf(dtype));
          if (dtype == from.dtype) {
            std::memcpy(to, At(from, element), head_dim * SizeOf(dtype));
          } else if (dtype == DType::kI8) {
            float scale;
            int32_t sum;
            kernels_.quantise(reinterpret_cast<int8_t*>(to), &scale, &sum,
                              Read(kernels_, from, element, head_dim, buffer), head_dim);
            std::memcpy(rows + kv.block_size * head_dim + offset * sizeof(scale), &scale,
                        sizeof(scale));
          } else {
            kernels_.widen[ElementOf(from.dtype)](buffer, At(from, element), head_dim);
            CheckComputes(dtype);
            kernels_.narrow[ElementOf(dtype)](to, buffer, head_dim);
          }
        }
      }
    }
  });
}

void CpuAttention::DoCopyKvBlocks(const PagedKv& kv, Tensor pairs) {
  const int64_t block = kv.cache.cols();
  const auto* const p = static_cast<const int32_t*>(pairs.data);
  for (int64_t i = 0; i < pairs.rows(); ++i) {
    const int64_t from = p[2 * i], to = p[2 * i + 1];
    CONTINUO_CHECK(from >= 0 && from < kv.cache.rows() && to >= 0 && to < kv.cache.rows());
    if (from == to) continue;
    std::memcpy(At(kv.cache, to * block), At(kv.cache, from * block),
                block * SizeOf(kv.cache.dtype));
  }
}

void CpuAttention::DoPagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                    const AttentionParams& params) {
  CheckComputes(q.dtype);
  attention_.Run(out, q, kv, params);
}

}  // namespace continuo::kernels::cpu
