// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/host/group_constants.h"

namespace continuo::kernels::cpu {

using host::kInt4Group;
using host::kInt8Group;
using host::kRoundShift;
using host::kSmallestScaled;

// Types of elements in memory, in the order of DType; indices of the arrays below. What is
// computed is always f32.
enum Element : int { kElementF32 = 0, kElementBF16 = 1, kElementF16 = 2, kNumElements = 3 };

// Positions reduced together by attention; equals kAttentionSpan.
constexpr int kSpan = 128;

constexpr int kSpanRun = 16;

// Queries that one call of attend_span takes at most.
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

// ---- Packed matrices; their layout is at PanelLayout (panels.h) ----

constexpr int kPanelColumns = 16;

// out[i * out_stride + j] = x row i · packed row j, over one piece of k elements. Rows of x are
// bf16 elements, or int8 elements beside a scale and a sum for each group.
//
// bf16: one accumulator per output, over k in pairs. int8, int4: the products of a group are added
// as integers, exactly; that sum becomes f32 and is multiplied by the weights' scale, then by the
// row's; these meet over the groups in ascending order, from the first one on. Every product and
// sum is rounded, so the bits are the same on every instruction set.
struct PanelBlock {
  float* out;
  size_t out_stride;
  const uint8_t* x;
  size_t x_stride;        // bytes
  const float* x_scales;  // [num_rows, group_stride]
  const int32_t* x_sums;  // likewise: of the group's elements
  size_t group_stride;
  size_t num_rows;
  const uint8_t* w;     // the piece in the first panel
  size_t panel_stride;  // bytes
  size_t num_panels;
  size_t k;
  const uint8_t* next;  // the first panel of what is likely read after this block; null: unknown
};

// The loops of the packed formats; null where the set has none.
struct PanelDots {
  void (*bf16)(const PanelBlock& block);
  void (*int8)(const PanelBlock& block);
  void (*int4)(const PanelBlock& block);
};

struct MemoryPiece {
  const char* data;
  ptrdiff_t bytes;
};

// One span of attention for queries that share a key-value head.
struct SpanArgs {
  const void* q;    // rows of floats, or of bf16 for attend_pairs; head_dim of them, then zeros
  size_t q_stride;  // bytes
  size_t num_queries;
  const void* const* keys;    // kSpan pointers to head_dim elements; read in [begin, end) only
  const void* const* values;  // likewise
  const float* key_scales;    // of int8: what each position's elements are multiplied by
  const float* value_scales;
  // Keys of each kSpanRun positions from a multiple of it on follow one another in memory, and
  // values do.
  bool runs;
  // Memory that is read soon after this span, in the order in which it lies.
  const MemoryPiece* next;
  const MemoryPiece* next_end;
  const int* begin;  // per query: the positions of the span that it sees, [begin, end),
  const int* end;    // perhaps none. Neither decreases from query to query.
  size_t head_dim;
  size_t stride;  // head_dim, rounded up to a multiple of pack_block, of int8 of twice that
  float scale;
  float softcap;  // 0: none
  // Scratch.
  float* key_panels;    // [kSpan * (stride + 1)]
  float* value_panels;  // [(kSpan + 1) * stride]
  float* step_panels;   // [stride]
  float* scores;        // [num_queries, kSpan]
  float* span_out;      // [num_queries, stride]
  // What the spans before gave, updated: maximum, sum of e^(score - maximum) and values weighted by
  // them, [num_queries, stride]. Before the first: -infinity, 0 and zeros. `max` and `sum` have
  // room for a vector more.
  float* max;
  float* sum;
  float* out;
  // Nothing is merged: `max`, `sum` and span_out become what this span gives by itself, for queries
  // that see something of it; `out` is not used.
  bool alone;
};

// The inner loops that differ per instruction set, chosen once when the backend is made. Every
// sum has one order, which is part of the set's arithmetic (kernels/README.md).
//
// The files that fill a table are compiled with that instruction set's flags, so they include
// only C headers: an inline std:: function compiled there could be the copy the linker keeps for
// the whole program.
struct KernelTable {
  const char* name;
  size_t pack_block;  // packed rows are padded with zeros to a multiple of this
  size_t row_tile;    // dots is fastest at multiples of these
  size_t col_tile;

  void (*widen[kNumElements])(float* out, const void* in, size_t n);
  void (*narrow[2])(void* out, const float* in, size_t n);  // to f32 (a copy), bf16
  // Orders n floats as `dots` wants them beside rows of the given type.
  void (*pack[kNumElements])(float* out, const float* in, size_t n);
  void (*dots[kNumElements])(const DotBlock& block);
  void (*attend_span[kNumElements])(const SpanArgs& args);
  void (*attend_int8)(const SpanArgs& args);
  // For bf16 queries, keys and values, by products of pairs; null where attend_span does them.
  void (*attend_pairs)(const SpanArgs& args);
  // Merges what one span gave alone, span_max and span_sum with room for a vector more and
  // args.span_out, into args.max, sum and out, for queries that see something of it.
  void (*merge_span)(const SpanArgs& args, const float* span_max, const float* span_sum);

  PanelDots panel_dots;
  // One group of n floats to integers from -127 to 127: x ≈ q · scale; their sum. NaN or infinity
  // among them makes the scale NaN.
  void (*quantise)(int8_t* q, float* scale, int32_t* sum, const float* x, size_t n);

  float (*sum_squares)(const float* x, size_t n);
  // out = (x * factor) * gain
  void (*scale)(float* out, const float* x, float factor, const float* gain, size_t n);
  // out = gate / (1 + e^-gate) * up
  void (*silu_mul)(float* out, const float* gate, const float* up, size_t n);
  // out = gelu(gate) * up, by its tanh form
  void (*gelu_mul)(float* out, const float* gate, const float* up, size_t n);
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
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;      // int8 and int4 as avx2 does
extern const KernelTable kAvx512VnniKernels;  // the same bits, faster
extern const KernelTable kAvx512Bf16Kernels;  // products of bf16 pairs
void Avx2Int8(const PanelBlock& block);
void Avx2Int4(const PanelBlock& block);
void Avx512VnniInt8(const PanelBlock& block);
void Avx512VnniInt4(const PanelBlock& block);
void Avx512Bf16(const PanelBlock& block);
void Avx512AttendPairs(const SpanArgs& args);
#elif defined(__aarch64__)
extern const KernelTable kNeonKernels;
extern const KernelTable kNeonDotKernels;  // the same bits, faster
void NeonInt8(const PanelBlock& block);
void NeonInt4(const PanelBlock& block);
void NeonDotInt8(const PanelBlock& block);
void NeonDotInt4(const PanelBlock& block);
#endif

}  // namespace continuo::kernels::cpu
