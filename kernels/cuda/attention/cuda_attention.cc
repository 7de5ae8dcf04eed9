// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/cuda_attention.h"

#include <algorithm>

#include "kernels/cuda/attention/decode_attention.h"
#include "kernels/cuda/attention/kv_ops.h"
#include "kernels/cuda/attention/rope.h"
#include "kernels/cuda/attention/simple_attention.h"
#include "kernels/cuda/attention/tile_attention.h"
#include "kernels/cuda/attention/wgmma_attention.h"
#include "kernels/cuda/runtime/chunk.h"
#include "kernels/cuda/runtime/dispatch.h"
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

// Returns whether RotateAndWriteKv takes heads of this size at this address.
bool FitsAWarp(const Tensor& heads, int64_t head_dim) {
  return head_dim <= MaxHeadDim(heads.dtype) &&
         head_dim * static_cast<int64_t>(SizeOf(heads.dtype)) % 16 == 0 && IsAligned(heads.data);
}

AttentionStep StepOf(const Tensor& q, const PagedKv& kv, const AttentionParams& params) {
  return {.block_tables = Data<const int32_t>(kv.block_tables),
          .kv_len = Data<const int32_t>(kv.kv_len),
          .query_begin = Data<const int32_t>(kv.query_begin),
          .rows = q.rows(),
          .max_blocks = kv.block_tables.cols(),
          .num_seqs = static_cast<int>(kv.kv_len.size()),
          .num_heads = params.num_heads,
          .num_kv_heads = params.num_kv_heads,
          .head_dim = params.head_dim,
          .heads_per_kv_head = params.heads_per_kv_head,
          .first_head = params.first_head,
          .first_kv_head = params.first_kv_head,
          .scale = params.scale,
          .softcap = params.softcap,
          .window = params.window,
          .chunk = params.chunk,
          .sinks = params.sinks.size() == 0 ? nullptr : Data<const float>(params.sinks)};
}

}  // namespace

bool CudaAttention::SupportsKvType(DType type, DType activations) const {
  if (type == DType::kI8 || type == DType::kF8) return true;
  return activations == DType::kF16 ? type == DType::kF16 : IsF32OrBF16(type);
}

void CudaAttention::DoRopeAngles(Tensor angles, Tensor positions, Tensor frequencies, float scale) {
  context_.Enqueue("RopeAngles", [&] {
    return cuda::RopeAngles(Data<float>(angles), Data<const int32_t>(positions),
                            Data<const float>(frequencies), angles.rows(), frequencies.size(),
                            scale, context_.kernels());
  });
}

void CudaAttention::DoGrowAngles(Tensor out, Tensor angles, Tensor positions,
                                 const QueryGrowth& growth) {
  context_.Enqueue("GrowAngles", [&] {
    return cuda::GrowAngles(Data<float>(out), Data<const float>(angles),
                            Data<const int32_t>(positions), angles.rows(), angles.cols(), growth,
                            context_.kernels());
  });
}

void CudaAttention::DoRope(Tensor x, Tensor angles, int head_dim) {
  context_.Enqueue("Rope", [&] {
    return WithType(x.dtype, [&]<typename T>() {
      return cuda::Rope(Data<T>(x), Data<const float>(angles), x.rows(), x.cols() / head_dim,
                        head_dim, angles.cols() / 2, context_.kernels());
    });
  });
}

void CudaAttention::DoWriteKv(const PagedKv& kv, Tensor k, Tensor v, Tensor slots) {
  const int64_t head_dim = k.cols() / kv.cache.shape[1];
  context_.Enqueue("WriteKv", [&] {
    return WithType(k.dtype, [&]<typename T>() {
      return WithElement<T>(kv.cache.dtype, [&]<typename Element>() {
        return cuda::WriteKv(LayoutOf<Element>(kv, head_dim), Data<const T>(k), Data<const T>(v),
                             Data<const int32_t>(slots), k.rows(), context_.kernels());
      });
    });
  });
}

void CudaAttention::DoRotateAndWriteKv(const PagedKv& kv, Tensor q, Tensor k, Tensor v,
                                       Tensor slots, const HeadRotation& rotation) {
  const int64_t head_dim = rotation.head_dim;
  if (q.size() == 0 || k.size() == 0 || !FitsAWarp(q, head_dim) || !FitsAWarp(k, head_dim)) {
    AttentionOps::DoRotateAndWriteKv(kv, q, k, v, slots, rotation);
    return;
  }
  RotateHeads(kv, {q, q.data, k.data, v.data, q.cols(), k.cols()}, slots, rotation);
}

void CudaAttention::DoRotateJoinedAndWriteKv(const PagedKv& kv, Tensor q, Tensor qkv, Tensor slots,
                                             const HeadRotation& rotation) {
  const auto element = static_cast<int64_t>(SizeOf(qkv.dtype));
  const int64_t columns = qkv.cols(), kv_columns = (columns - q.cols()) / 2;
  auto* const from = static_cast<char*>(qkv.data);
  char* const k = from + q.cols() * element;
  char* const v = k + kv_columns * element;
  if (FitsAWarp(q, rotation.head_dim) && FitsAWarp(qkv, rotation.head_dim)) {
    RotateHeads(kv, {q, from, k, v, columns, columns}, slots, rotation);
    return;
  }
  // The single ops take heads that lie side by side.
  Tensor keys = {nullptr, qkv.dtype, {qkv.rows(), kv_columns, 1}}, values = keys;
  keys.data = context_.Scratch(2 * keys.bytes());
  if (!context_.ok()) return;
  values.data = static_cast<char*>(keys.data) + keys.bytes();
  const auto copy = [&](const Tensor& to, const char* columns_from) {
    const auto width = static_cast<size_t>(to.cols() * element);
    context_.Enqueue("cudaMemcpy2DAsync", [&] {
      return cudaMemcpy2DAsync(to.data, width, columns_from, static_cast<size_t>(columns * element),
                               width, static_cast<size_t>(to.rows()), cudaMemcpyDeviceToDevice,
                               context_.stream().get());
    });
  };
  copy(q, from);
  copy(keys, k);
  copy(values, v);
  AttentionOps::DoRotateAndWriteKv(kv, q, keys, values, slots, rotation);
}

void CudaAttention::RotateHeads(const PagedKv& kv, const Heads& heads, Tensor slots,
                                const HeadRotation& rotation) {
  const Tensor& q = heads.rotated_q;
  const int64_t head_dim = rotation.head_dim;
  const bool has_norm = rotation.q_gain.size() > 0;
  CONTINUO_CHECK(!has_norm ||
                 (rotation.q_gain.dtype == DType::kF32 && rotation.k_gain.dtype == DType::kF32));
  const HeadRotationArrays arrays = {
      .q_gain = has_norm ? Data<const float>(rotation.q_gain) : nullptr,
      .k_gain = has_norm ? Data<const float>(rotation.k_gain) : nullptr,
      .eps = rotation.eps,
      .angles = Data<const float>(rotation.angles),
      .num_frequencies = static_cast<int>(rotation.angles.cols() / 2)};
  context_.Enqueue("RotateAndWriteKv", [&] {
    return WithType(q.dtype, [&]<typename T>() {
      return WithElement<T>(kv.cache.dtype, [&]<typename Element>() {
        const HeadArrays<T> arrays_of_heads = {.q = static_cast<const T*>(heads.q),
                                               .rotated_q = Data<T>(q),
                                               .k = static_cast<T*>(heads.k),
                                               .v = static_cast<const T*>(heads.v),
                                               .q_stride = heads.q_stride,
                                               .kv_stride = heads.kv_stride,
                                               .num_heads = static_cast<int>(q.cols() / head_dim)};
        return cuda::RotateAndWriteKv(LayoutOf<Element>(kv, head_dim), arrays_of_heads,
                                      Data<const int32_t>(slots), q.rows(), arrays,
                                      context_.kernels());
      });
    });
  });
}

void CudaAttention::DoCopyKvBlocks(const PagedKv& kv, Tensor pairs) {
  const int64_t bytes = kv.cache.cols() * static_cast<int64_t>(SizeOf(kv.cache.dtype));
  CONTINUO_CHECK(bytes % 4 == 0);
  context_.Enqueue("CopyKvBlocks", [&] {
    return cuda::CopyKvBlocks(kv.cache.data, bytes, Data<const int32_t>(pairs), pairs.rows(),
                              context_.kernels());
  });
}

void CudaAttention::AttendToDecodes(Tensor out, Tensor q, const PagedKv& kv,
                                    const AttentionStep& step) {
  static_assert(kMostDecodeBlocks <= CudaContext::kNumCounters);
  const DType kept = kv.cache.dtype;
  CONTINUO_CHECK(SizeOf(kept) == 1 || kept == q.dtype);
  const DecodePlan plan = PlanDecodeAttention(step, step.max_blocks * kv.block_size,
                                              context_.device().num_multiprocessors);
  auto* const scratch = static_cast<float*>(context_.Scratch(plan.scratch_bytes));
  context_.Enqueue("DecodeAttention", [&] {
    return WithNumber(q.dtype, [&]<typename Number>() {
      const auto attend = [&]<typename Element>() {
        return DecodeAttention(Data<Number>(out), Data<const Number>(q),
                               LayoutOf<const Element>(kv, step.head_dim), step, plan, scratch,
                               context_.counters(), context_.kernels());
      };
      return kept == q.dtype ? attend.template operator()<Number>() : WithBytes(kept, attend);
    });
  });
}

void CudaAttention::AttendByTiles(Tensor out, Tensor q, const PagedKv& kv,
                                  const AttentionStep& step) {
  const DType kept = kv.cache.dtype;
  CONTINUO_CHECK(SizeOf(kept) == 1 || kept == q.dtype);
  const int64_t max_kv_len = step.max_blocks * kv.block_size;
  const size_t least = MinTileAttentionScratch(step.num_kv_heads, step.head_dim, max_kv_len);
  auto* const scratch =
      static_cast<float*>(context_.Scratch(std::max(least, context_.scratch_capacity())));
  const DeviceInfo& device = context_.device();
  const bool wgmma = options_.wgmma_prefill && device.major == 9 && device.minor == 0 &&
                     HasWgmmaAttention(step.head_dim);
  const TileAttentionPlan plan =
      PlanTileAttention(step, max_kv_len, device.num_multiprocessors, context_.scratch_capacity(),
                        options_.deterministic, wgmma);
  context_.Enqueue("TileAttention", [&] {
    return WithNumber(q.dtype, [&]<typename Number>() {
      const auto attend = [&]<typename Element>() {
        return TileAttention(Data<Number>(out), Data<const Number>(q),
                             LayoutOf<const Element>(kv, step.head_dim), step, plan, scratch,
                             context_.kernels());
      };
      return kept == q.dtype ? attend.template operator()<Number>() : WithBytes(kept, attend);
    });
  });
}

void CudaAttention::DoPagedAttention(Tensor out, Tensor q, const PagedKv& kv,
                                     const AttentionParams& params) {
  CONTINUO_CHECK(!params.bidirectional);
  if (!context_.ok()) return;
  AttentionStep step = StepOf(q, kv, params);
  const DType kept = kv.cache.dtype;
  if (q.dtype == DType::kF32 || kept == DType::kF32 || !HasTileAttention(params.head_dim)) {
    context_.Enqueue("SimpleAttention", [&] {
      return WithType(q.dtype, [&]<typename T>() {
        return WithElement<T>(kept, [&]<typename Element>() {
          return SimpleAttention<T, Element>(Data<T>(out), Data<const T>(q),
                                             LayoutOf<const Element>(kv, params.head_dim), step,
                                             context_.kernels());
        });
      });
    });
    return;
  }
  // Decodes are bound by reading keys and values, other sequences by products.
  const int num_decodes = options_.deterministic || !FitsDecodeAttention(step) ? 0 : kv.num_decodes;
  AttentionStep others = step;
  if (num_decodes > 0) {
    others.block_tables += num_decodes * step.max_blocks;
    others.kv_len += num_decodes;
    others.query_begin += num_decodes;
    others.first_row = num_decodes;
    others.rows -= num_decodes;
    others.num_seqs -= num_decodes;
    step.rows = step.num_seqs = num_decodes;
    AttendToDecodes(out, q, kv, step);
  }
  if (others.num_seqs > 0) AttendByTiles(out, q, kv, others);
}

}  // namespace continuo::kernels::cuda
