// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda_runtime_api.h"
#include "kernels/cuda/runtime/kernel_stream.h"

// Ops of layers with state. T is float, uint16_t (bf16) or Half. Launchers return the launch's
// error.
namespace continuo::kernels::cuda {

inline constexpr int kMaxConvWidth = 8;
inline constexpr int kMaxStateKeys = 256;  // keys of a state, whose columns lie in shared memory

// The device arrays of StatePlaces (kernels/state_ops.h).
struct StateArrays {
  const int32_t* query_begin = nullptr;  // [num_seqs + 1]
  const int32_t* from = nullptr;         // [num_seqs]
  const int32_t* to = nullptr;           // [rows]
  int64_t num_seqs = 0;
};

// StateOps::CausalConv. out and x [rows, channels]; taps [width, channels]; bias [channels] or
// null; states [slots, width - 1, channels]; width at most kMaxConvWidth.
template <typename T>
cudaError_t CausalConv(T* out, const T* x, const float* taps, const float* bias, bool silu,
                       T* states, const StateArrays& places, int64_t channels, int width,
                       KernelStream stream);

// StateOps::StateDecay. x, decay and step [rows, heads]; step may be null.
template <typename T>
cudaError_t StateDecay(float* decay, float* step, const T* x, const float* rate, const float* bias,
                       float least, float most, int64_t rows, int heads, KernelStream stream);

// StateOps::Sigmoid of n elements.
template <typename T>
cudaError_t Sigmoid(float* out, const T* x, int64_t n, KernelStream stream);

// The members of StateUpdate, and sizes.
template <typename T>
struct StateRows {
  const T* q = nullptr;  // [rows, num_key_heads * keys]
  const T* k = nullptr;
  const T* v = nullptr;             // [rows, num_heads * values]
  const float* decay = nullptr;     // [rows, num_heads]
  const float* strength = nullptr;  // [rows, num_heads]
  const float* skip = nullptr;      // [num_heads] or null
  bool is_delta = true;
  int num_heads = 0, num_key_heads = 0;
  int keys = 0, values = 0;  // elements of a head; at most kMaxStateKeys keys
};

// StateOps::UpdateStates. out [rows, num_heads * values]; states [slots, num_heads, keys, values].
template <typename T>
cudaError_t UpdateStates(T* out, const StateRows<T>& rows, float* states, const StateArrays& places,
                         KernelStream stream);

}  // namespace continuo::kernels::cuda
