// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/states/states.h"

#include <cmath>

#include "kernels/cuda/runtime/host_device.h"
#include "kernels/cuda/runtime/launch.h"
#include "kernels/math/exact_math.h"

namespace continuo::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kParts = kThreads / kWarp;  // warps of a block, which share the keys of a state

// A thread takes a channel of a sequence through all its rows. Products and sums are rounded one by
// one, as on the CPU.
template <typename T>
__global__ void CausalConvKernel(T* out, const T* x, const float* taps, const float* bias,
                                 bool silu, T* states, StateArrays places, int64_t channels,
                                 int width) {
  WaitForPreviousKernel();
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= channels) return;
  const int64_t seq = blockIdx.y;
  const int64_t begin = places.query_begin[seq], end = places.query_begin[seq + 1];
  const int64_t from = places.from[seq];
  if (begin == end) return;
  const auto slot_row = [&](int64_t slot, int i) {
    return (slot * (width - 1) + i) * channels + c;
  };
  // The rows that a row sees, the oldest first.
  float seen[kMaxConvWidth] = {}, weights[kMaxConvWidth] = {};
  CONTINUO_UNROLL
  for (int j = 0; j < kMaxConvWidth; ++j) {
    if (j < width) weights[j] = taps[j * channels + c];
    if (j + 1 < width) seen[j + 1] = from < 0 ? 0.0f : Widen(states[slot_row(from, j)]);
  }
  const float first = bias == nullptr ? 0.0f : bias[c];
  for (int64_t r = begin; r < end; ++r) {
    const float now = Widen(x[r * channels + c]);
    float sum = first;
    CONTINUO_UNROLL
    for (int j = 0; j < kMaxConvWidth; ++j) {
      if (j >= width) continue;
      seen[j] = j + 1 < width ? seen[j + 1 < kMaxConvWidth ? j + 1 : j] : now;
      sum = sum + weights[j] * seen[j];
    }
    Store(out + r * channels + c, silu ? sum / (1.0f + expf(-sum)) : sum);
    const int64_t to = places.to[r];
    if (to < 0) continue;
    CONTINUO_UNROLL
    for (int j = 1; j < kMaxConvWidth; ++j) {
      if (j < width) Store(states + slot_row(to, j - 1), seen[j]);
    }
  }
}

template <typename T>
__global__ void StateDecayKernel(float* decay, float* step, const T* x, const float* rate,
                                 const float* bias, float least, float most, int64_t n, int heads) {
  WaitForPreviousKernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const int head = static_cast<int>(i % heads);
    const double wanted =
        ExactSoftplus(static_cast<double>(Widen(x[i])) + static_cast<double>(bias[head]));
    // Also for NaN, which stays.
    const float value = static_cast<float>(wanted < least ? least : wanted > most ? most : wanted);
    if (step != nullptr) step[i] = value;
    decay[i] =
        static_cast<float>(ExactExp(static_cast<double>(rate[head]) * static_cast<double>(value)));
  }
}

template <typename T>
__global__ void SigmoidKernel(float* out, const T* x, int64_t n) {
  WaitForPreviousKernel();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    out[i] = static_cast<float>(1.0 / (1.0 + ExactExp(-static_cast<double>(Widen(x[i])))));
  }
}

// The bytes of shared memory of a block: the keys' rows of the state, keys and queries of a row,
// and the parts of two sums.
size_t StateBytes(int keys) {
  return sizeof(float) *
         (static_cast<size_t>(keys) * kWarp + 2 * static_cast<size_t>(keys) + 2 * kThreads);
}

// A block takes 32 columns of a head's state through all rows of a sequence. A lane has a column;
// warp w has the keys i with i mod 4 = w, so the sums have the CPU's order: four, then
// (0 + 1) + (2 + 3).
template <typename T>
__global__ void UpdateStatesKernel(T* out, const CONTINUO_READ_IN_PLACE StateRows<T> rows,
                                   float* states, StateArrays places) {
  WaitForPreviousKernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int part = thread / kWarp, lane = thread % kWarp;
  const int column = static_cast<int>(blockIdx.x) * kWarp + lane;
  const bool is_column = column < rows.values;
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head / (rows.num_heads / rows.num_key_heads);
  const int64_t seq = blockIdx.z;
  const int64_t begin = places.query_begin[seq], end = places.query_begin[seq + 1];
  if (begin == end) return;
  float* const state = reinterpret_cast<float*>(SharedMemory());
  float* const k = state + rows.keys * kWarp;
  float* const q = k + rows.keys;
  float* const old_parts = q + rows.keys;
  float* const out_parts = old_parts + kThreads;
  const auto in_slot = [&](int64_t slot) {
    return states + (slot * rows.num_heads + head) * rows.keys * rows.values + column;
  };
  const auto sum_of = [lane](const float* parts) {
    return (parts[lane] + parts[kWarp + lane]) +
           (parts[2 * kWarp + lane] + parts[3 * kWarp + lane]);
  };
  const int64_t from = places.from[seq];
  for (int i = part; i < rows.keys; i += kParts) {
    state[i * kWarp + lane] =
        from >= 0 && is_column ? in_slot(from)[static_cast<int64_t>(i) * rows.values] : 0.0f;
  }
  for (int64_t r = begin; r < end; ++r) {
    const int64_t key = (r * rows.num_key_heads + key_head) * rows.keys;
    for (int i = thread; i < rows.keys; i += kThreads) {
      k[i] = Widen(rows.k[key + i]);
      q[i] = Widen(rows.q[key + i]);
    }
    SyncBlock();
    const int64_t value = (r * rows.num_heads + head) * rows.values + column;
    const float v = is_column ? Widen(rows.v[value]) : 0.0f;
    const float decay = rows.decay[r * rows.num_heads + head];
    const float strength = rows.strength[r * rows.num_heads + head];
    float u = v;
    if (rows.is_delta) {
      float sum = 0;
      for (int i = part; i < rows.keys; i += kParts) {
        sum = fmaf(k[i], state[i * kWarp + lane], sum);
      }
      old_parts[thread] = sum;
      SyncBlock();
      u = v - decay * sum_of(old_parts);
    }
    u = u * strength;
    float sum = 0;
    for (int i = part; i < rows.keys; i += kParts) {
      const float now = fmaf(k[i], u, decay * state[i * kWarp + lane]);
      state[i * kWarp + lane] = now;
      sum = fmaf(q[i], now, sum);
    }
    out_parts[thread] = sum;
    // Nobody reads k and q any more, which the next row overwrites.
    SyncBlock();
    if (part == 0 && is_column) {
      const float result = sum_of(out_parts);
      Store(out + value, rows.skip == nullptr ? result : result + rows.skip[head] * v);
    }
    const int64_t to = places.to[r];
    if (to < 0 || !is_column) continue;
    for (int i = part; i < rows.keys; i += kParts) {
      in_slot(to)[static_cast<int64_t>(i) * rows.values] = state[i * kWarp + lane];
    }
  }
}

}  // namespace

template <typename T>
cudaError_t CausalConv(T* out, const T* x, const float* taps, const float* bias, bool silu,
                       T* states, const StateArrays& places, int64_t channels, int width,
                       KernelStream stream) {
  const dim3 grid(static_cast<unsigned>((channels + kThreads - 1) / kThreads),
                  static_cast<unsigned>(places.num_seqs));
  return Launch("CausalConv", CausalConvKernel<T>, grid, kThreads, 0, stream, out, x, taps, bias,
                silu, states, places, channels, width);
}

template <typename T>
cudaError_t StateDecay(float* decay, float* step, const T* x, const float* rate, const float* bias,
                       float least, float most, int64_t rows, int heads, KernelStream stream) {
  return Launch("StateDecay", StateDecayKernel<T>, dim3(BlocksFor(rows * heads, kThreads)),
                kThreads, 0, stream, decay, step, x, rate, bias, least, most, rows * heads, heads);
}

template <typename T>
cudaError_t Sigmoid(float* out, const T* x, int64_t n, KernelStream stream) {
  return Launch("Sigmoid", SigmoidKernel<T>, dim3(BlocksFor(n, kThreads)), kThreads, 0, stream, out,
                x, n);
}

template <typename T>
cudaError_t UpdateStates(T* out, const StateRows<T>& rows, float* states, const StateArrays& places,
                         KernelStream stream) {
  const dim3 grid(static_cast<unsigned>((rows.values + kWarp - 1) / kWarp),
                  static_cast<unsigned>(rows.num_heads), static_cast<unsigned>(places.num_seqs));
  return Launch("UpdateStates", UpdateStatesKernel<T>, grid, kThreads, StateBytes(rows.keys),
                stream, out, rows, states, places);
}

#define CONTINUO_STATES_OF(T)                                                                  \
  template cudaError_t CausalConv(T*, const T*, const float*, const float*, bool, T*,          \
                                  const StateArrays&, int64_t, int, KernelStream);             \
  template cudaError_t StateDecay(float*, float*, const T*, const float*, const float*, float, \
                                  float, int64_t, int, KernelStream);                          \
  template cudaError_t Sigmoid(float*, const T*, int64_t, KernelStream);                       \
  template cudaError_t UpdateStates(T*, const StateRows<T>&, float*, const StateArrays&,       \
                                    KernelStream);
CONTINUO_STATES_OF(float)
CONTINUO_STATES_OF(uint16_t)
CONTINUO_STATES_OF(Half)
#undef CONTINUO_STATES_OF

}  // namespace continuo::kernels::cuda
