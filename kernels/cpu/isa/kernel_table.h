// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/group_format.h"
#include "kernels/host/group_constants.h"
#include "kernels/math/arithmetic.h"

namespace continuo::kernels::cpu {

using host::kRoundShift;
using host::kSmallestScaled;

// The types of elements in memory, in the order of DType; they index the arrays below. The
// arithmetic is always f32.
enum Element : int { kElementF32 = 0, kElementBF16 = 1, kElementF16 = 2, kNumElements = 3 };

// Positions whose keys follow one another in memory, KvChunkArgs::runs.
constexpr int kKvRun = 16;

// The most queries of one call of attend_chunk.
constexpr int kMaxQueries = 60;

// out[i * out_stride + j] = x row i · w row j, over k elements. x rows are packed for w's type by
// KernelTable::pack and x_stride floats apart; w rows are w_stride elements apart, any alignment.
struct DotBlock {
  float* out;
  size_t out_stride;
  const float* x;
  size_t x_stride;
  size_t num_rows;
  const void* w;
  size_t w_stride;
  size_t num_cols;
  size_t k;
  size_t gap;  // bytes from the last row of w to the rows that this thread likely reads next
};

// ---- Packed matrices; matmul/panel_layout.h describes their layout ----

constexpr int kPanelColumns = 16;

// The groups of a packed int8 or int4 matrix, and the bytes of a unit of a panel and of the scales
// at its beginning.
struct PanelGroups {
  GroupFormat format;
  uint8_t table[16];  // of codes that are no integers: the integer of each, plus 128
  size_t header_bytes;
  size_t unit_bytes;
};

// out[i * out_stride + j] = x row i · packed row j, over one K split of k elements. Rows of x are
// f32 or bf16 elements, or int8 elements with a scale and sums for each group. A row of int8 is
// readable for 63 bytes beyond its split; what lies there does not matter.
//
// bf16: one accumulator per output, over k in pairs. int8, int4: the products of a group are added
// as integers, exactly; that sum becomes f32 and is multiplied by the weights' scale, then by the
// row's. With a minimum, minimum · (sum of the row's integers · the row's scale) is added to that.
// The groups are added in ascending order, from the first one on. Every product and sum is rounded,
// so the bits are the same on every instruction set.
struct PanelBlock {
  float* out;
  size_t out_stride;
  const uint8_t* x;
  size_t x_stride;  // bytes
  // These are [groups, group_stride], a row's number of each group: its scale, the sum of its
  // elements, and that sum times the scale. They are null where there are no groups.
  const float* x_scales;
  const int32_t* x_sums;
  const float* x_scaled_sums;
  size_t group_stride;
  size_t num_rows;
  const uint8_t* w;     // the split in the first panel
  size_t panel_stride;  // bytes
  size_t num_panels;
  size_t k;
  const PanelGroups* groups;  // of int8 and int4
  const uint8_t* next;  // the first panel of what is likely read after this block; null: unknown
};

// The loops of the packed formats; null where the set has none. All have that of f32.
struct PanelDots {
  void (*f32)(const PanelBlock& block);
  void (*bf16)(const PanelBlock& block);
  void (*int8)(const PanelBlock& block);
  void (*int4)(const PanelBlock& block);
};

// Memory to prefetch.
struct MemoryRange {
  const char* data;
  ptrdiff_t bytes;
};

// Attention of one KV chunk for queries that share a KV head.
struct KvChunkArgs {
  const void* q;    // rows of floats, or of bf16 for attend_pairs; head_dim of them, then zeros
  size_t q_stride;  // bytes
  size_t num_queries;
  const void* const* keys;    // kKvChunk pointers to head_dim elements; read in [begin, end) only
  const void* const* values;  // likewise
  const float* key_scales;    // of int8: what each position's elements are multiplied by
  const float* value_scales;
  // Keys of each kKvRun positions, from a multiple of it on, follow one another in memory, and so
  // do values.
  bool runs;
  // Memory that is read soon after this chunk, in the order of its addresses.
  const MemoryRange* next;
  const MemoryRange* next_end;
  // Per query: it sees the chunk's positions [begin, end), perhaps none. Neither decreases from
  // query to query.
  const int* begin;
  const int* end;
  size_t head_dim;
  size_t stride;  // head_dim, rounded up to a multiple of pack_block, of int8 of twice that
  float scale;
  float softcap;  // 0: none
  // Scratch.
  float* key_panels;    // [kKvChunk * (stride + 1)]
  float* value_panels;  // [(kKvChunk + 1) * stride]
  float* step_panels;   // [stride]
  float* scores;        // [num_queries, kKvChunk]
  float* chunk_out;     // [num_queries, stride]
  // The results of the chunks before, which are updated: maximum, sum of e^(score - maximum) and
  // values weighted by them, [num_queries, stride]. Before the first chunk they are -infinity, 0
  // and zeros. `max` and `sum` have room for a vector more.
  float* max;
  float* sum;
  float* out;
  // Nothing is merged: `max`, `sum` and chunk_out become the results of this chunk alone, for
  // queries that see some of it. `out` is not used.
  bool write_partial;
};

// Rows of one sequence at one head of a recurrent state, in order (StateOps::UpdateStates). For
// each row: u = (v - decay · Sᵀk) · strength, or without the delta rule v · strength; S = decay · S
// + k uᵀ; out = Sᵀq + *skip · v.
struct StateBlock {
  float* out;    // [num_rows, value_stride]
  float* state;  // S: [key_dim, state_stride]
  size_t state_stride;
  const float* q;  // [num_rows, key_dim]
  const float* k;
  const float* v;  // [num_rows, value_stride]
  size_t value_stride;
  const float* decay;  // one a row, gate_stride apart
  const float* strength;
  size_t gate_stride;
  const float* skip;  // null: 0
  size_t num_rows;
  size_t key_dim;      // a multiple of 4
  size_t num_columns;  // of S, v and out that are computed; a multiple of 16
};

// The inner loops that differ per instruction set, chosen once when the device is made. Every
// sum has one order, which is part of the set's arithmetic (docs/arithmetic.md).
//
// The files that fill a table are compiled with that instruction set's flags, so they include
// only C headers: an inline std:: function compiled there could be the copy the linker keeps for
// the whole program.
struct KernelTable {
  const char* name;
  size_t pack_block;  // packed rows are padded with zeros to a multiple of this

  void (*widen[kNumElements])(float* out, const void* in, size_t n);
  void (*narrow[2])(void* out, const float* in, size_t n);  // to f32 (a copy), bf16
  // Orders n floats as `dots` wants them beside rows of the given type.
  void (*pack[kNumElements])(float* out, const float* in, size_t n);
  void (*dots[kNumElements])(const DotBlock& block);
  void (*attend_chunk[kNumElements])(const KvChunkArgs& args);
  void (*attend_int8)(const KvChunkArgs& args);
  // For bf16 queries, keys and values, by products of pairs; null where attend_chunk takes those.
  void (*attend_pairs)(const KvChunkArgs& args);
  // Merges the results of one chunk alone (chunk_max and chunk_sum, with room for a vector more,
  // and args.chunk_out) into args.max, sum and out, for queries that see some of the chunk.
  void (*merge_chunk)(const KvChunkArgs& args, const float* chunk_max, const float* chunk_sum);

  PanelDots panel_dots;
  // Rounds a group of n floats to integers from -127 to 127, x ≈ q · scale, and sums them. NaN or
  // infinity among them makes the scale NaN.
  void (*quantise)(int8_t* q, float* scale, int32_t* sum, const float* x, size_t n);

  float (*sum_squares)(const float* x, size_t n);
  // out = (x * factor) * gain
  void (*scale)(float* out, const float* x, float factor, const float* gain, size_t n);
  // out = gate / (1 + e^-gate) * up
  void (*silu_mul)(float* out, const float* gate, const float* up, size_t n);
  // out = gelu(gate) * up, by its tanh form
  void (*gelu_mul)(float* out, const float* gate, const float* up, size_t n);
  // out = gate / (1 + e^(-1.702 gate)) * (up + 1), gate at most 7 and up from -7 to 7
  void (*clamped_swiglu)(float* out, const float* gate, const float* up, size_t n);
  // out = max(gate, 0)² * up
  void (*relu_squared_mul)(float* out, const float* gate, const float* up, size_t n);
  // out = gate * (1 + erf(gate / √2)) / 2 * up
  void (*gelu_erf_mul)(float* out, const float* gate, const float* up, size_t n);
  // out = gate * up
  void (*multiply)(float* out, const float* gate, const float* up, size_t n);
  // out = up / (1 + e^-gate)
  void (*sigmoid_mul)(float* out, const float* gate, const float* up, size_t n);
  // x = cap * tanh(x / cap), in place
  void (*soft_cap)(float* x, float cap, size_t n);
  // out = a + b
  void (*add)(float* out, const float* a, const float* b, size_t n);
  // sum = sum + x * factor, product and sum rounded
  void (*add_scaled)(float* sum, const float* x, float factor, size_t n);
  // out = in / divisor
  void (*divide)(float* out, const float* in, float divisor, size_t n);
  // (low, high) = (low·cos − high·sin, high·cos + low·sin), in place
  void (*rotate)(float* low, float* high, const float* cos, const float* sin, size_t n);
  // out = bias + Σ taps[j * tap_stride + i] · rows[j][i] for i below n, j from 0 to width - 1;
  // every product and sum is rounded. A null bias is 0.
  void (*conv_row)(float* out, const float* const* rows, const float* taps, size_t tap_stride,
                   size_t width, const float* bias, size_t n);
  // Without and with the delta rule.
  void (*update_state[2])(const StateBlock& block);
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;         // int8 and int4 as avx2 does
extern const KernelTable kAvx512VnniKernels;     // the same bits, faster
extern const KernelTable kAvx512AmxKernels;      // the same bits, faster still
extern const KernelTable kAvx512Bf16Kernels;     // products of bf16 pairs
extern const KernelTable kAvx512Bf16AmxKernels;  // the same bits, faster
void Avx2Int8(const PanelBlock& block);
void Avx2Int4(const PanelBlock& block);
void Avx512VnniInt8(const PanelBlock& block);
void Avx512VnniInt4(const PanelBlock& block);
// Called only after AllKernels has returned a table that has them: it asks Linux for AMX.
void AmxInt8(const PanelBlock& block);
void AmxInt4(const PanelBlock& block);
void Avx512Bf16(const PanelBlock& block);
void Avx512AttendPairs(const KvChunkArgs& args);
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
extern const KernelTable kNeonDotKernels;  // the same bits, faster
void NeonInt8(const PanelBlock& block);
void NeonInt4(const PanelBlock& block);
void NeonDotInt8(const PanelBlock& block);
void NeonDotInt4(const PanelBlock& block);
#endif

}  // namespace continuo::kernels::cpu
