// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/adapters/adapters.h"

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kParts = kThreads / kWarp;  // warps of a block, which share the elements of a sum
constexpr int kEntries = 4;               // rows of a group that share a read of its factors
constexpr int kColumns = 128;             // of a block of Expand, a thread each

// The tiles of kEntries entries of all groups, one group after the other.
CONTINUO_HOST_DEVICE inline int64_t TilesOf(const AdapterGroup& group) {
  return (group.end - group.begin + kEntries - 1) / kEntries;
}

// The group of a block's tile, and its first entry.
struct Tile {
  const AdapterGroup* group = nullptr;
  int64_t begin = 0;
  int entries = 0;
};

__device__ inline Tile FindTile(const AdapterJob& job, int64_t tile) {
  for (int g = 0; g < job.num_groups; ++g) {
    const AdapterGroup& group = job.groups[g];
    const int64_t tiles = TilesOf(group);
    if (tile >= tiles) {
      tile -= tiles;
      continue;
    }
    const int64_t begin = group.begin + tile * kEntries;
    return {&group, begin, static_cast<int>(Min(kEntries, group.end - begin))};
  }
  return {};
}

__device__ inline float FactorAt(const AdapterGroup& group, int64_t at) {
  return group.is_bf16 ? Widen(static_cast<const uint16_t*>(group.factors)[at])
                       : static_cast<const float*>(group.factors)[at];
}

// A block has 32 columns of a tile's entries. A lane has a column; warp w has the elements k of a
// split with k mod 8 = w, whose sums are added in pairs. The splits' sums are added in their tree.
template <typename T>
__global__ void ShrinkKernel(float* inner, int64_t inner_columns, const T* x, int64_t k,
                             const CONTINUO_READ_IN_PLACE AdapterJob job,
                             const CONTINUO_READ_IN_PLACE AdapterSplits splits) {
  WaitForPreviousKernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = thread / kWarp, lane = thread % kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const Tile tile = FindTile(job, blockIdx.y);
  const AdapterGroup& group = *tile.group;
  const bool is_own = column < group.width;
  float* const parts = reinterpret_cast<float*>(SharedMemory());  // [kParts, kEntries, 32]
  float* const sums = parts + kParts * kEntries * kWarp;          // [splits, kEntries, 32]
  const T* rows[kEntries];
  CONTINUO_UNROLL
  for (int e = 0; e < kEntries; ++e) {
    // Entries behind the last repeat it, and are not written.
    const int own = e < tile.entries ? e : tile.entries - 1;
    rows[e] = x + static_cast<int64_t>(job.rows[tile.begin + own]) * k;
  }
  for (int split = 0; split < splits.count; ++split) {
    float own[kEntries] = {};
    if (is_own) {
      CONTINUO_UNROLL_BY(4)
      for (int64_t i = splits.begin[split] + part; i < splits.begin[split + 1]; i += kParts) {
        const float weight = FactorAt(group, i * group.width + column);
        CONTINUO_UNROLL
        for (int e = 0; e < kEntries; ++e) own[e] = fmaf(weight, Widen(rows[e][i]), own[e]);
      }
    }
    CONTINUO_UNROLL
    for (int e = 0; e < kEntries; ++e) parts[(part * kEntries + e) * kWarp + lane] = own[e];
    SyncBlock();
    for (int i = thread; i < kEntries * kWarp; i += kThreads) {
      const auto at = [&](int p) { return parts[p * kEntries * kWarp + i]; };
      sums[split * kEntries * kWarp + i] =
          ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
    }
    SyncBlock();
  }
  for (int i = thread; i < kEntries * kWarp; i += kThreads) {
    const int entry = i / kWarp;
    const int64_t to = static_cast<int64_t>(blockIdx.x) * kWarp + i % kWarp;
    if (entry >= tile.entries || to >= inner_columns) continue;
    // A thread reads and writes its own place of every split alone.
    for (int step = 1; step < splits.count; step *= 2) {
      for (int s = 0; s < splits.count; s += 2 * step) {
        sums[s * kEntries * kWarp + i] += sums[(s + step) * kEntries * kWarp + i];
      }
    }
    inner[(tile.begin + entry) * inner_columns + to] = sums[i];
  }
}

template <typename T>
__global__ void ExpandKernel(T* out, int64_t out_columns, const float* inner, int64_t inner_columns,
                             const CONTINUO_READ_IN_PLACE AdapterJob job) {
  WaitForPreviousKernel();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  const Tile tile = FindTile(job, blockIdx.y);
  const AdapterGroup& group = *tile.group;
  if (column >= group.columns) return;
  const float* values[kEntries];
  CONTINUO_UNROLL
  for (int e = 0; e < kEntries; ++e) {
    const int own = e < tile.entries ? e : tile.entries - 1;
    values[e] = inner + (tile.begin + own) * inner_columns + group.first;
  }
  float sums[kEntries] = {};
  CONTINUO_UNROLL_BY(4)
  for (int j = 0; j < group.width; ++j) {
    const float weight = FactorAt(group, j * group.columns + column);
    CONTINUO_UNROLL
    for (int e = 0; e < kEntries; ++e) sums[e] = fmaf(weight, values[e][j], sums[e]);
  }
  CONTINUO_UNROLL
  for (int e = 0; e < kEntries; ++e) {
    if (e >= tile.entries) continue;
    T* const to =
        out + static_cast<int64_t>(job.rows[tile.begin + e]) * out_columns + group.column + column;
    Store(to, fmaf(sums[e], group.factor, Widen(*to)));
  }
}

dim3 GridOf(int64_t columns, int width, const AdapterJob& job) {
  int64_t tiles = 0;
  for (int g = 0; g < job.num_groups; ++g) tiles += TilesOf(job.groups[g]);
  return dim3(static_cast<unsigned>((columns + width - 1) / width), static_cast<unsigned>(tiles));
}

}  // namespace

template <typename T>
cudaError_t ShrinkAdapters(float* inner, int64_t inner_columns, const T* x, int64_t k,
                           const AdapterJob& job, const AdapterSplits& splits,
                           KernelStream stream) {
  const size_t shared =
      sizeof(float) * kEntries * kWarp * static_cast<size_t>(kParts + splits.count);
  return Launch("Shrink", ShrinkKernel<T>, GridOf(inner_columns, kWarp, job), kThreads, shared,
                stream, inner, inner_columns, x, k, job, splits);
}

template <typename T>
cudaError_t ExpandAdapters(T* out, int64_t out_columns, const float* inner, int64_t inner_columns,
                           const AdapterJob& job, KernelStream stream) {
  int64_t widest = 0;
  for (int g = 0; g < job.num_groups; ++g) widest = Max(widest, job.groups[g].columns);
  return Launch("Expand", ExpandKernel<T>, GridOf(widest, kColumns, job), kColumns, 0, stream, out,
                out_columns, inner, inner_columns, job);
}

#define CONTINUO_INSTANTIATE(T)                                                                 \
  template cudaError_t ShrinkAdapters<T>(float*, int64_t, const T*, int64_t, const AdapterJob&, \
                                         const AdapterSplits&, KernelStream);                   \
  template cudaError_t ExpandAdapters<T>(T*, int64_t, const float*, int64_t, const AdapterJob&, \
                                         KernelStream);
CONTINUO_INSTANTIATE(float)
CONTINUO_INSTANTIATE(uint16_t)
CONTINUO_INSTANTIATE(Half)
#undef CONTINUO_INSTANTIATE

}  // namespace continuo::kernels::cuda
