// SPDX-License-Identifier: Apache-2.0
// The ops of CudaBackend that are kernels of ours: checks, types, and the launch.
#include <algorithm>

#include "kernels/attention_check.h"
#include "kernels/cuda/attention/kv_ops.h"
#include "kernels/cuda/attention/prompt_attention.h"
#include "kernels/cuda/attention/span_attention.h"
#include "kernels/cuda/attention/tile_attention.h"
#include "kernels/cuda/backend_calls.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/rope.h"
#include "kernels/cuda/ops/row_ops.h"
#include "kernels/cuda/runtime/chunk.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

template <typename Element>
KvLayout<Element> LayoutOf(const PagedKv& kv, int64_t head_dim) {
  return {.cache = static_cast<Element*>(kv.cache.data),
          .num_blocks = kv.cache.shape[0],
          .num_heads = static_cast<int>(kv.cache.shape[1]),
          .block_size = kv.block_size,
          .head_dim = static_cast<int>(head_dim)};
}

// Whether RotateAndWriteKv takes such heads, at such an address.
bool FitsAWarp(const Tensor& heads, int64_t head_dim) {
  return head_dim <= MaxHeadDim(heads.dtype) &&
         head_dim * static_cast<int64_t>(SizeOf(heads.dtype)) % 16 == 0 && IsAligned(heads.data);
}

}  // namespace

void CudaBackend::Embed(Tensor out, const Weight& table, Tensor token_ids, int first_id,
                        float scale) {
  CONTINUO_CHECK(token_ids.dtype == DType::kI32 && token_ids.size() == out.rows());
  CONTINUO_CHECK(table.data.rows() == 0 || table.data.cols() == out.cols());
  if (table.format != WeightFormat::kDense) {
    if (out.size() > 0) EmbedQuantised(out, table, token_ids, first_id, scale);
    return;
  }
  const auto embed = [&]<typename T, typename W>() {
    return cuda::Embed(Data<T>(out), Data<const W>(table.data), Data<const int32_t>(token_ids),
                       out.rows(), out.cols(), table.data.rows(), first_id, scale, stream());
  };
  Enqueue("Embed", [&] {
    if (table.data.dtype == DType::kF16) {
      CONTINUO_CHECK(out.dtype == DType::kF16 || out.dtype == DType::kF32);
      return out.dtype == DType::kF16 ? embed.template operator()<Half, Half>()
                                      : embed.template operator()<float, Half>();
    }
    return WithF32OrBF16(out.dtype, [&]<typename T>() {
      return WithF32OrBF16(table.data.dtype,
                           [&]<typename W>() { return embed.template operator()<T, W>(); });
    });
  });
}

void CudaBackend::RmsNorm(Tensor out, Tensor x, Tensor gain, float eps) {
  const int64_t n = gain.size();
  CONTINUO_CHECK(out.dtype == x.dtype && out.size() == x.size() && gain.dtype == DType::kF32);
  if (x.size() == 0) return;
  CONTINUO_CHECK(n > 0 && x.size() % n == 0);
  Enqueue("RmsNorm", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::RmsNorm(Data<T>(out), Data<const T>(x), Data<const float>(gain), x.size() / n, n,
                           eps, stream());
    });
  });
}

void CudaBackend::AddSum(Tensor x, Tensor sum, Tensor bias) {
  CONTINUO_CHECK(sum.dtype == DType::kF32 && sum.size() == x.size());
  CONTINUO_CHECK(bias.size() == 0 || (bias.dtype == DType::kF32 && bias.size() == x.cols()));
  Enqueue("AddSum", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::AddSum(Data<T>(x), Data<const float>(sum),
                          bias.size() == 0 ? nullptr : Data<const float>(bias), x.rows(), x.cols(),
                          stream());
    });
  });
}

void CudaBackend::AddSumNorm(Tensor out, Tensor x, Tensor sum, Tensor bias, Tensor gain,
                             float eps) {
  CONTINUO_CHECK(sum.dtype == DType::kF32 && sum.size() == x.size());
  CONTINUO_CHECK(bias.size() == 0 || (bias.dtype == DType::kF32 && bias.size() == x.cols()));
  CONTINUO_CHECK(out.dtype == x.dtype && out.size() == x.size());
  CONTINUO_CHECK(gain.dtype == DType::kF32 && gain.size() == x.cols());
  WithFp8Rows(out, [&](const Fp8Rows& fp8) {
    Enqueue("AddSumNorm", [&] {
      return WithType(x.dtype, [&]<typename T>() {
        return cuda::AddSumNorm(Data<T>(out), fp8, Data<T>(x), Data<const float>(sum),
                                bias.size() == 0 ? nullptr : Data<const float>(bias),
                                Data<const float>(gain), x.rows(), x.cols(), eps, stream());
      });
    });
  });
}

void CudaBackend::RopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) {
  const int64_t n = frequencies.size();
  CONTINUO_CHECK(angles.dtype == DType::kF32 && positions.dtype == DType::kI32);
  CONTINUO_CHECK(frequencies.dtype == DType::kF32 && angles.cols() == 2 * n);
  CONTINUO_CHECK(positions.size() == angles.rows());
  Enqueue("RopeAngles", [&] {
    return cuda::RopeAngles(Data<float>(angles), Data<const int32_t>(positions),
                            Data<const float>(frequencies), angles.rows(), n, scale, stream());
  });
}

void CudaBackend::Rope(Tensor x, Tensor angles, int head_dim) {
  CONTINUO_CHECK(angles.dtype == DType::kF32);
  if (x.size() == 0) return;
  const int64_t n = angles.cols() / 2;
  CONTINUO_CHECK(head_dim > 0 && x.cols() % head_dim == 0 && 2 * n <= head_dim);
  CONTINUO_CHECK(angles.rows() == x.rows());
  Enqueue("Rope", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::Rope(Data<T>(x), Data<const float>(angles), x.rows(), x.cols() / head_dim,
                        head_dim, n, stream());
    });
  });
}

bool CudaBackend::Keeps(DType type, DType activations) const {
  if (type == DType::kI8 || type == DType::kF8) return true;
  return activations == DType::kF16 ? type == DType::kF16 : IsF32OrBF16(type);
}

void CudaBackend::WriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) {
  CONTINUO_CHECK(slots.dtype == DType::kI32 && slots.size() == k.rows() && k.rows() == v.rows());
  CONTINUO_CHECK(k.cols() == v.cols() && k.dtype == v.dtype);
  if (k.size() == 0) return;
  CONTINUO_CHECK(kv.block_size > 0 && kv.cache.shape[1] > 0);
  const int64_t head_dim = k.cols() / kv.cache.shape[1];
  CONTINUO_CHECK(head_dim * kv.cache.shape[1] == k.cols());
  CONTINUO_CHECK(kv.cache.shape[2] == 2 * kv.block_size * KvRowElements(kv.cache.dtype, head_dim));
  Enqueue("WriteKv", [&] {
    return WithType(k.dtype, [&]<typename T>() {
      return WithElement<T>(kv.cache.dtype, [&]<typename Element>() {
        return cuda::WriteKv(LayoutOf<Element>(kv, head_dim), Data<const T>(k), Data<const T>(v),
                             Data<const int32_t>(slots), k.rows(), stream());
      });
    });
  });
}

void CudaBackend::RotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v, Tensor slots,
                                   const HeadRotation& how) {
  const int64_t rows = q.rows(), head_dim = how.head_dim;
  if (q.size() == 0 || k.size() == 0 || !FitsAWarp(q, head_dim) || !FitsAWarp(k, head_dim)) {
    Backend::RotateAndWriteKv(kv, q, k, v, slots, how);
    return;
  }
  CONTINUO_CHECK(slots.dtype == DType::kI32 && slots.size() == rows && k.rows() == rows);
  CONTINUO_CHECK(v.rows() == rows && k.cols() == v.cols() && k.dtype == v.dtype);
  CONTINUO_CHECK(q.dtype == k.dtype && q.cols() % head_dim == 0);
  CONTINUO_CHECK(k.cols() == kv.cache.shape[1] * head_dim && kv.block_size > 0);
  CONTINUO_CHECK(kv.cache.shape[2] == 2 * kv.block_size * KvRowElements(kv.cache.dtype, head_dim));
  CONTINUO_CHECK(how.angles.dtype == DType::kF32 && how.angles.rows() == rows);
  CONTINUO_CHECK(how.angles.cols() <= head_dim && how.q_gain.size() == how.k_gain.size());
  CONTINUO_CHECK(how.q_gain.size() == 0 ||
                 (how.q_gain.size() == head_dim && how.q_gain.dtype == DType::kF32 &&
                  how.k_gain.dtype == DType::kF32));
  const bool has_norm = how.q_gain.size() > 0;
  const HeadRotationArrays arrays = {.q_gain = has_norm ? Data<const float>(how.q_gain) : nullptr,
                                     .k_gain = has_norm ? Data<const float>(how.k_gain) : nullptr,
                                     .eps = how.eps,
                                     .angles = Data<const float>(how.angles),
                                     .num_frequencies = static_cast<int>(how.angles.cols() / 2)};
  Enqueue("RotateAndWriteKv", [&] {
    return WithType(q.dtype, [&]<typename T>() {
      return WithElement<T>(kv.cache.dtype, [&]<typename Element>() {
        return cuda::RotateAndWriteKv(LayoutOf<Element>(kv, head_dim), Data<T>(q), Data<T>(k),
                                      Data<const T>(v), Data<const int32_t>(slots), rows,
                                      static_cast<int>(q.cols() / head_dim), arrays, stream());
      });
    });
  });
}

void CudaBackend::CopyKvBlocks(const PagedKv& kv, Tensor pairs) {
  CONTINUO_CHECK(pairs.dtype == DType::kI32 && (pairs.rows() == 0 || pairs.cols() == 2));
  const int64_t bytes = kv.cache.cols() * static_cast<int64_t>(SizeOf(kv.cache.dtype));
  CONTINUO_CHECK(bytes % 4 == 0);
  Enqueue("CopyKvBlocks", [&] {
    return cuda::CopyKvBlocks(kv.cache.data, bytes, Data<const int32_t>(pairs), pairs.rows(),
                              stream());
  });
}

void CudaBackend::TileAttentionOf(Tensor out, Tensor q, const PagedKv& kv,
                                  const AttentionStep& step, bool single) {
  const DType kept = kv.cache.dtype;
  const int64_t max_kv_len = step.max_blocks * kv.block_size;
  const size_t least = MinTileAttentionScratch(step.num_kv_heads, step.head_dim, max_kv_len);
  auto* const scratch = static_cast<float*>(host::Scratch(std::max(least, scratch_.bytes())));
  const Device& device = options_.device;
  const bool warpgroups = options_.warpgroup_attention && device.major == 9 && device.minor == 0 &&
                          kept == q.dtype && HasPromptAttention(step.head_dim);
  const TileAttentionPlan plan =
      PlanTileAttention(step, max_kv_len, device.num_multiprocessors, scratch_.bytes(), single,
                        options_.deterministic, warpgroups);
  CONTINUO_CHECK(SizeOf(kept) == 1 || kept == q.dtype);
  Enqueue("TileAttention", [&] {
    return WithNumber(q.dtype, [&]<typename Number>() {
      const auto attend = [&]<typename Element>() {
        return TileAttention(Data<Number>(out), Data<const Number>(q),
                             LayoutOf<const Element>(kv, step.head_dim), step, plan, scratch,
                             stream());
      };
      return kept == q.dtype ? attend.template operator()<Number>() : WithBytes(kept, attend);
    });
  });
}

void CudaBackend::PagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                 const AttentionParams& params) {
  const int64_t num_seqs = kv.kv_len.size();
  CheckAttention(out, q, kv, params);
  CONTINUO_CHECK(out.dtype == q.dtype);
  if (q.size() == 0 || !failure_.ok()) return;
  AttentionStep step = {.block_tables = Data<const int32_t>(kv.block_tables),
                        .kv_len = Data<const int32_t>(kv.kv_len),
                        .query_begin = Data<const int32_t>(kv.query_begin),
                        .rows = q.rows(),
                        .max_blocks = kv.block_tables.cols(),
                        .num_seqs = static_cast<int>(num_seqs),
                        .num_heads = params.num_heads,
                        .num_kv_heads = params.num_kv_heads,
                        .head_dim = params.head_dim,
                        .heads_per_kv_head = params.heads_per_kv_head,
                        .first_head = params.first_head,
                        .first_kv_head = params.first_kv_head,
                        .scale = params.scale,
                        .softcap = params.softcap,
                        .window = params.window};
  const DType kept = kv.cache.dtype;
  if (q.dtype != DType::kF32 && kept != DType::kF32 && HasTileAttention(params.head_dim)) {
    // Sequences of one row are bound by reading keys and values, others by products.
    const int num_single = options_.deterministic || !FitsSmallTiles(step) ? 0 : kv.num_single;
    AttentionStep others = step;
    if (num_single > 0) {
      others.block_tables += num_single * step.max_blocks;
      others.kv_len += num_single;
      others.query_begin += num_single;
      others.first_row = num_single;
      others.rows -= num_single;
      others.num_seqs -= num_single;
      step.rows = step.num_seqs = num_single;
      TileAttentionOf(out, q, kv, step, /*single=*/true);
    }
    if (others.num_seqs > 0) TileAttentionOf(out, q, kv, others, /*single=*/false);
    return;
  }
  Enqueue("SpanAttention", [&] {
    return WithType(q.dtype, [&]<typename T>() {
      return WithElement<T>(kept, [&]<typename Element>() {
        return SpanAttention<T, Element>(Data<T>(out), Data<const T>(q),
                                         LayoutOf<const Element>(kv, params.head_dim), step,
                                         stream());
      });
    });
  });
}

void CudaBackend::SiluMul(Tensor out, Tensor gate, Tensor up) {
  CONTINUO_CHECK(gate.size() == out.size() && up.size() == out.size());
  CONTINUO_CHECK(gate.dtype == out.dtype && up.dtype == out.dtype);
  Enqueue("SiluMul", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      return cuda::SiluMul(Data<T>(out), Data<const T>(gate), Data<const T>(up), out.size(),
                           stream());
    });
  });
}

void CudaBackend::GeluMul(Tensor out, Tensor gate, Tensor up) {
  CONTINUO_CHECK(gate.size() == out.size() && up.size() == out.size());
  CONTINUO_CHECK(gate.dtype == out.dtype && up.dtype == out.dtype);
  Enqueue("GeluMul", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      return cuda::GeluMul(Data<T>(out), Data<const T>(gate), Data<const T>(up), out.size(),
                           stream());
    });
  });
}

void CudaBackend::SoftCap(Tensor x, float cap) {
  CONTINUO_CHECK(x.dtype == DType::kF32 && cap > 0);
  Enqueue("SoftCap", [&] { return cuda::SoftCap(Data<float>(x), cap, x.size(), stream()); });
}

void CudaBackend::GatherRows(Tensor out, Tensor x, Tensor rows) {
  CONTINUO_CHECK(rows.dtype == DType::kI32 && rows.size() == out.rows());
  CONTINUO_CHECK(out.dtype == x.dtype && out.cols() == x.cols());
  Enqueue("GatherRows", [&] {
    return WithType(out.dtype, [&]<typename T>() {
      return cuda::GatherRows(Data<T>(out), Data<const T>(x), Data<const int32_t>(rows), out.rows(),
                              out.cols(), stream());
    });
  });
}

}  // namespace continuo::kernels::cuda
