// SPDX-License-Identifier: Apache-2.0
// clang-format off
// Included once per instruction set, inside that set's unnamed namespace, after it has defined
// the words below. It defines the loops and `MakeTable`. No include guard: not a header.
//
//   Vec, kLanes                        a vector of floats
//   Zero Set Load Store Add Sub Mul Div Max
//   MulAdd(a, b, c)                    a·b + c: fused where the set has it, else rounded twice
//   IfLess(a, b, yes, no)              per lane a < b ? yes : no
//   PowerOfTwo(z)                      2^n for z = kRoundShift + n, -126 <= n <= 127
//   Sum, MaxOf                         over lanes: i with i + kLanes/2, then halves of that, …
//   SumEach<n>(out, vectors)           Sum of each of n vectors, the same bits
//   Evens(a, b), Odds(a, b)            every second lane of a, then of b
//   Transpose(v)                       lane j of vector i becomes lane i of vector j, for kLanes
//                                      vectors
//   Keep(v)                            v, in a register: not loaded again for each use
//   LoadWords(p)                       kLanes words of whatever lies there
//   LoadBF16 LoadF16 StoreBF16         kLanes 16-bit elements
//   LoadBF16Even LoadBF16Odd           every second of 2·kLanes elements
//   LoadI8 I8Part<i>                   kLanes bytes; byte i of each word
//   BF16Even BF16Odd                   those of a vector that holds 2·kLanes elements
//   kRowTile, kColTile, kColTile1      dot products done at once: rows × columns, and of one row
//   kFloatRows, kFloatPanels           the tile of packed f32: rows × panels, and the rows up to
//   kFloatSmallM                       which it has four panels
//   kQueryTile, kPanelTile             the same of attention: queries × vectors
//   kDecodeAccumulators                accumulators of attention's sums of values when decoding; ≥ 8
// clang-format on

#include "kernels/cpu/isa/float_panels-inl.h"
#include "kernels/cpu/isa/vector_math-inl.h"

// ---- Conversions ----

template <class E>
static void WidenRow(float* out, const void* in, size_t n) {
  const typename E::T* p = static_cast<const typename E::T*>(in);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, E::Widen(p + i));
  if (i < n) StorePart(out + i, WidenPart<E>(p + i, n - i), n - i);
}

static void NarrowF32(void* out, const float* in, size_t n) { memcpy(out, in, n * sizeof(float)); }

static void NarrowBF16(void* out, const float* in, size_t n) {
  uint16_t* p = static_cast<uint16_t*>(out);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) StoreBF16(p + i, Load(in + i));
  if (i < n) {
    uint16_t part[kLanes];
    StoreBF16(part, LoadPart(in + i, n - i));
    memcpy(p + i, part, (n - i) * sizeof(uint16_t));
  }
}

static size_t Padded(size_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

static void PackPlain(float* out, const float* in, size_t n) {
  memcpy(out, in, n * sizeof(float));
  for (size_t i = n; i < Padded(n); ++i) out[i] = 0;
}

static void PackEvenOdd(float* out, const float* in, size_t n) {
  size_t b = 0;
  for (; b + kBlock <= n; b += kBlock) {
    const Vec first = Load(in + b), second = Load(in + b + kLanes);
    Store(out + b, Evens(first, second));
    Store(out + b + kLanes, Odds(first, second));
  }
  if (b < n) {
    for (size_t i = 0; i < kLanes; ++i) {
      out[b + i] = b + 2 * i < n ? in[b + 2 * i] : 0;
      out[b + kLanes + i] = b + 2 * i + 1 < n ? in[b + 2 * i + 1] : 0;
    }
  }
}

// ---- Dot products ----

// Up to this many rows the time of a product is that of reading the weights.
constexpr size_t kSmallM = 16;

// Weights are prefetched this many bytes before they are needed.
constexpr size_t kPrefetchBytes = 65536;

// One accumulator per output, over k in blocks: its order does not depend on the tile's shape.
// `ahead` is the prefetch distance: bytes from each row of w to one that is read soon; 0: none.
template <class E, size_t kM, size_t kN, bool kPrefetch>
INLINE void DotSteps(Vec (&acc)[kM][kN], const float* x, size_t x_stride,
                     const typename E::T* const* w, size_t begin, size_t end, size_t ahead) {
  for (size_t k = begin; k < end; k += kBlock) {
    if constexpr (kPrefetch) {
      UNROLL for (size_t j = 0; j < kN; ++j) Prefetch(w[j] + k, ahead);
    }
    for (size_t half = 0; half < 2; ++half) {
      if constexpr (kM <= kN) {
        Vec xs[kM];
        UNROLL for (size_t i = 0; i < kM; ++i) xs[i] = Load(x + i * x_stride + k + half * kLanes);
        UNROLL for (size_t j = 0; j < kN; ++j) {
          const Vec v = half == 0 ? E::First(w[j] + k) : E::Second(w[j] + k);
          UNROLL for (size_t i = 0; i < kM; ++i) acc[i][j] = MulAdd(xs[i], v, acc[i][j]);
        }
      } else {
        Vec ws[kN];
        UNROLL for (size_t j = 0; j < kN; ++j) {
          ws[j] = half == 0 ? E::First(w[j] + k) : E::Second(w[j] + k);
        }
        UNROLL for (size_t i = 0; i < kM; ++i) {
          const Vec v = Keep(Load(x + i * x_stride + k + half * kLanes));
          UNROLL for (size_t j = 0; j < kN; ++j) acc[i][j] = MulAdd(v, ws[j], acc[i][j]);
        }
      }
    }
  }
}

// out[i][j] = x row i · w[j], over k elements.
template <class E, size_t kM, size_t kN, bool kPrefetch>
static void DotTile(float* out, size_t out_stride, const float* x, size_t x_stride,
                    const typename E::T* const* rows, size_t k, size_t ahead) {
  const typename E::T* w[kN];
  UNROLL for (size_t j = 0; j < kN; ++j) w[j] = rows[j];
  Vec acc[kM][kN];
  UNROLL for (size_t i = 0; i < kM; ++i) {
    UNROLL for (size_t j = 0; j < kN; ++j) acc[i][j] = Zero();
  }
  const size_t whole = k / kBlock * kBlock;
  DotSteps<E, kM, kN, kPrefetch>(acc, x, x_stride, w, 0, whole, ahead);
  if (whole < k) {
    typename E::T part[kN][kBlock] = {};
    const typename E::T* parts[kN];
    UNROLL for (size_t j = 0; j < kN; ++j) {
      memcpy(part[j], w[j] + whole, (k - whole) * sizeof(part[0][0]));
      parts[j] = part[j];
    }
    DotSteps<E, kM, kN, false>(acc, x + whole, x_stride, parts, 0, kBlock, 0);
  }
  // The sums are copied, so that the accumulators above never need an address.
  Vec flat[kM * kN];
  UNROLL for (size_t i = 0; i < kM; ++i) {
    UNROLL for (size_t j = 0; j < kN; ++j) flat[i * kN + j] = acc[i][j];
  }
  float sums[kM * kN];
  SumEach<kM * kN>(sums, flat);
  UNROLL for (size_t i = 0; i < kM; ++i) {
    memcpy(out + i * out_stride, sums + i * kN, kN * sizeof(float));
  }
}

// All rows of x times kN rows of w.
template <class E, size_t kN, bool kPrefetch>
static void DotColumns(float* out, size_t out_stride, const float* x, size_t x_stride,
                       size_t num_rows, const typename E::T* const* rows, size_t k, size_t ahead) {
  if (num_rows >= kRowTile) {
    DotTile<E, kRowTile, kN, kPrefetch>(out, out_stride, x, x_stride, rows, k, ahead);
    size_t i = kRowTile;
    for (; i + kRowTile <= num_rows; i += kRowTile) {
      DotTile<E, kRowTile, kN, false>(out + i * out_stride, out_stride, x + i * x_stride, x_stride,
                                      rows, k, 0);
    }
    if (i < num_rows) {
      DotColumns<E, kN, false>(out + i * out_stride, out_stride, x + i * x_stride, x_stride,
                               num_rows - i, rows, k, 0);
    }
    return;
  }
  switch (num_rows) {
    case 1:
      return DotTile<E, 1, kN, kPrefetch>(out, out_stride, x, x_stride, rows, k, ahead);
    case 2:
      return DotTile<E, 2, kN, kPrefetch>(out, out_stride, x, x_stride, rows, k, ahead);
    case 3:
      return DotTile<E, 3, kN, kPrefetch>(out, out_stride, x, x_stride, rows, k, ahead);
  }
}
static_assert(kRowTile == 4, "DotColumns names the remainders");

template <class E>
static void Dots(const DotBlock& b) {
  using T = typename E::T;
  const T* w = static_cast<const T*>(b.w);
  size_t j = 0;
  const T* rows[kColTile > kColTile1 ? kColTile : kColTile1];
  const auto point = [&](size_t n) {
    for (size_t i = 0; i < n; ++i) rows[i] = w + (j + i) * b.w_stride;
  };
  // The distance in bytes from a row of the tile at j to the row that is prefetched meanwhile:
  // whole tiles, and past the end of this block in the one that comes next.
  const auto ahead = [&](size_t tile) {
    const size_t bytes = tile * b.w_stride * sizeof(T);
    if (bytes == 0) return bytes;  // a rank without columns
    const size_t tiles = (kPrefetchBytes + bytes - 1) / bytes;
    return tiles * bytes + (j + tiles * tile >= b.num_cols ? b.gap : 0);
  };
  if (b.num_rows == 1) {
    for (; j + kColTile1 <= b.num_cols; j += kColTile1) {
      point(kColTile1);
      DotTile<E, 1, kColTile1, true>(b.out + j, b.out_stride, b.x, b.x_stride, rows, b.k,
                                     ahead(kColTile1));
    }
  } else if (b.num_rows <= kSmallM) {
    // Small M: the rows stay in the cache, and each row of w is read once.
    for (; j + kColTile <= b.num_cols; j += kColTile) {
      point(kColTile);
      DotColumns<E, kColTile, true>(b.out + j, b.out_stride, b.x, b.x_stride, b.num_rows, rows, b.k,
                                    ahead(kColTile));
    }
  } else {
    // Large M: a tile of them stays in the L1 cache, w in the L2 cache.
    const size_t whole = b.num_cols / kColTile * kColTile;
    for (size_t i = 0; i < b.num_rows; i += kRowTile) {
      const size_t m = b.num_rows - i < kRowTile ? b.num_rows - i : kRowTile;
      for (j = 0; j < whole; j += kColTile) {
        point(kColTile);
        float* out = b.out + i * b.out_stride + j;
        const float* x = b.x + i * b.x_stride;
        if (i == 0) {
          DotColumns<E, kColTile, true>(out, b.out_stride, x, b.x_stride, m, rows, b.k,
                                        ahead(kColTile));
        } else {
          DotColumns<E, kColTile, false>(out, b.out_stride, x, b.x_stride, m, rows, b.k, 0);
        }
      }
    }
    j = whole;
  }
  for (; j < b.num_cols; ++j) {
    point(1);
    DotColumns<E, 1, false>(b.out + j, b.out_stride, b.x, b.x_stride, b.num_rows, rows, b.k, 0);
  }
}

#include "kernels/cpu/isa/attention-inl.h"
#include "kernels/cpu/isa/state-inl.h"

// ---- Rows ----

// Four accumulators over k in turn; (0 + 1) + (2 + 3), then over lanes.
static float SumSquares(const float* x, size_t n) {
  Vec acc[4] = {Zero(), Zero(), Zero(), Zero()};
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    UNROLL for (size_t a = 0; a < 4; ++a) {
      const Vec v = Load(x + i + a * kLanes);
      acc[a] = MulAdd(v, v, acc[a]);
    }
  }
  for (size_t a = 0; i < n; i += kLanes, ++a) {
    const Vec v = i + kLanes <= n ? Load(x + i) : LoadPart(x + i, n - i);
    acc[a] = MulAdd(v, v, acc[a]);
  }
  return Sum(Add(Add(acc[0], acc[1]), Add(acc[2], acc[3])));
}

static void Scale(float* out, const float* x, float factor, const float* gain, size_t n) {
  const Vec f = Set(factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, Mul(Mul(Load(x + i), f), Load(gain + i)));
  if (i < n) {
    const size_t m = n - i;
    StorePart(out + i, Mul(Mul(LoadPart(x + i, m), f), LoadPart(gain + i, m)), m);
  }
}

// Applies a function of a gate and what it multiplies to n floats of each.
template <Vec (*kGate)(Vec gate, Vec up)>
static void GateRow(float* out, const float* gate, const float* up, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, kGate(Load(gate + i), Load(up + i)));
  if (i < n) {
    const size_t m = n - i;
    StorePart(out + i, kGate(LoadPart(gate + i, m), LoadPart(up + i, m)), m);
  }
}

INLINE Vec Silu(Vec gate, Vec up) {
  return Mul(Div(gate, Add(Set(1.0f), Exp(Sub(Zero(), gate)))), up);
}

INLINE Vec Gelu(Vec gate, Vec up) {
  const Vec cube = Mul(Mul(gate, gate), gate);
  // -2√(2/π)
  const Vec u = Mul(Set(-1.5957691216057308f), MulAdd(Set(0.044715f), cube, gate));
  return Mul(Div(gate, Add(Set(1.0f), Exp(u))), up);
}

// erf by formula 7.1.26 of Abramowitz and Stegun, Handbook of Mathematical Functions, whose error
// is 1.5e-7: with x = |gate| / √2 and t = 1 / (1 + p x), 1 - erf(x) = e^-x² (a1 t + … + a5 t⁵).
INLINE Vec GeluErf(Vec gate, Vec up) {
  const Vec zero = Zero(), one = Set(1.0f), half = Set(0.5f);
  const Vec size = Max(gate, Sub(zero, gate));
  // p / √2
  const Vec t = Div(one, MulAdd(Set(0.23164187f), size, one));
  Vec p = Set(1.061405429f);
  p = MulAdd(p, t, Set(-1.453152027f));
  p = MulAdd(p, t, Set(1.421413741f));
  p = MulAdd(p, t, Set(-0.284496736f));
  p = MulAdd(p, t, Set(0.254829592f));
  // Half of what is beyond |gate|, of the normal distribution.
  const Vec beyond = Mul(Mul(Mul(half, p), t), Exp(Mul(Mul(gate, gate), Set(-0.5f))));
  const Vec part = IfLess(gate, zero, beyond, Sub(one, beyond));
  return Mul(Mul(gate, part), up);
}

// Every product and sum is rounded by itself. NaN stays.
INLINE Vec ClampedSwiglu(Vec gate, Vec up) {
  const Vec limit = Set(7.0f), least = Set(-7.0f);
  gate = IfLess(limit, gate, limit, gate);
  up = IfLess(limit, up, limit, IfLess(up, least, least, up));
  const Vec e = Exp(Mul(Set(-1.702f), gate));
  return Mul(Div(gate, Add(Set(1.0f), e)), Add(up, Set(1.0f)));
}

// Both products are rounded. NaN stays.
INLINE Vec ReluSquared(Vec gate, Vec up) {
  gate = IfLess(gate, Zero(), Zero(), gate);
  return Mul(Mul(gate, gate), up);
}

INLINE Vec SigmoidTimes(Vec gate, Vec up) {
  return Div(up, Add(Set(1.0f), Exp(Sub(Zero(), gate))));
}

static void SoftCap(float* x, float cap, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(x + i, Cap(Load(x + i), Set(cap)));
  if (i < n) StorePart(x + i, Cap(LoadPart(x + i, n - i), Set(cap)), n - i);
}

static void AddRows(float* out, const float* a, const float* b, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, Add(Load(a + i), Load(b + i)));
  for (; i < n; ++i) out[i] = a[i] + b[i];
}

static void AddScaled(float* sum, const float* x, float factor, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(sum + i, Add(Load(sum + i), Mul(Load(x + i), Set(factor))));
  }
  for (; i < n; ++i) sum[i] = sum[i] + x[i] * factor;
}

static void Divide(float* out, const float* in, float divisor, size_t n) {
  const Vec d = Set(divisor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(out + i, Div(Load(in + i), d));
  for (; i < n; ++i) out[i] = in[i] / divisor;
}

// Products and sums are rounded one by one: the same bits on every instruction set.
static void Rotate(float* low, float* high, const float* cos, const float* sin, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec l = Load(low + i), h = Load(high + i), c = Load(cos + i), s = Load(sin + i);
    Store(low + i, Sub(Mul(l, c), Mul(h, s)));
    Store(high + i, Add(Mul(h, c), Mul(l, s)));
  }
  for (; i < n; ++i) {
    const float l = low[i], h = high[i];
    low[i] = l * cos[i] - h * sin[i];
    high[i] = h * cos[i] + l * sin[i];
  }
}

// Plain loops, which the compiler turns into vectors; every operation is exact or rounded by
// itself, so the set does not matter.
static void Quantise(int8_t* q, float* scale, int32_t* sum, const float* x, size_t n) {
  // Larger floats without a sign have larger bits; NaN has the largest.
  uint32_t top_bits = 0;
  for (size_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffffu;
    top_bits = bits > top_bits ? bits : top_bits;
  }
  float top;
  memcpy(&top, &top_bits, sizeof(top));
  *sum = 0;
  if (top_bits >= 0x7f800000u || top < kSmallestScaled) {
    memset(q, 0, n);
    *scale = top_bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    return;
  }
  const float inverse = 127.0f / top;
  int32_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    const float shifted = x[i] * inverse + kRoundShift;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    const int8_t value = static_cast<int8_t>(bits);
    q[i] = value;
    total += value;
  }
  *sum = total;
  *scale = top / 127.0f;
}

constexpr KernelTable MakeTable(const char* name, PanelDots panel_dots,
                                void (*attend_pairs)(const KvChunkArgs&) = nullptr) {
  return {
      name,
      kBlock,
      {WidenRow<F32>, WidenRow<BF16>, WidenRow<F16>},
      {NarrowF32, NarrowBF16},
      {PackPlain, PackEvenOdd, PackPlain},
      {Dots<F32>, Dots<BF16>, Dots<F16>},
      {AttendChunk<FloatAttention<F32>>, AttendChunk<FloatAttention<BF16>>,
       AttendChunk<FloatAttention<F16>>},
      AttendChunk<FloatAttention<I8>>,
      attend_pairs,
      MergeChunk,
      {Panels<FloatPanelTile>, panel_dots.bf16, panel_dots.int8, panel_dots.int4},
      Quantise,
      SumSquares,
      Scale,
      GateRow<Silu>,
      GateRow<Gelu>,
      GateRow<ClampedSwiglu>,
      GateRow<ReluSquared>,
      GateRow<GeluErf>,
      GateRow<Mul>,
      GateRow<SigmoidTimes>,
      SoftCap,
      AddRows,
      AddScaled,
      Divide,
      Rotate,
      ConvRow,
      {UpdateState<false>, UpdateState<true>},
  };
}
