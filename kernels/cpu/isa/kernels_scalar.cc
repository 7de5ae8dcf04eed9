// SPDX-License-Identifier: Apache-2.0
// The path that every machine has: eight lanes as two vectors of four in the compiler's generic
// vector arithmetic, no fused multiply-add.

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

typedef float V4 __attribute__((vector_size(16)));
typedef uint32_t U4 __attribute__((vector_size(16)));
struct Vec {
  V4 a, b;
};
constexpr size_t kLanes = 8;
constexpr size_t kRowTile = 4;
constexpr size_t kColTile = 1;
constexpr size_t kColTile1 = 4;
constexpr size_t kFloatRows = 2, kFloatPanels = 1, kFloatSmallM = 1;
constexpr size_t kQueryTile = 2;
constexpr size_t kPanelTile = 2;
constexpr size_t kDecodeAccumulators = 8;

INLINE V4 Set4(float x) { return V4{x, x, x, x}; }
INLINE Vec Set(float x) { return {Set4(x), Set4(x)}; }
INLINE Vec Zero() { return Set(0); }
INLINE Vec LoadWords(const void* p) {
  Vec v;
  memcpy(&v, p, sizeof(v));
  return v;
}
INLINE Vec Load(const float* p) { return LoadWords(p); }
INLINE Vec Keep(Vec v) { return v; }
INLINE void Store(float* p, Vec v) { memcpy(p, &v, sizeof(v)); }
INLINE Vec Evens(Vec x, Vec y) {
  return {V4{x.a[0], x.a[2], x.b[0], x.b[2]}, V4{y.a[0], y.a[2], y.b[0], y.b[2]}};
}
INLINE Vec Odds(Vec x, Vec y) {
  return {V4{x.a[1], x.a[3], x.b[1], x.b[3]}, V4{y.a[1], y.a[3], y.b[1], y.b[3]}};
}
INLINE Vec Add(Vec x, Vec y) { return {x.a + y.a, x.b + y.b}; }
INLINE Vec Sub(Vec x, Vec y) { return {x.a - y.a, x.b - y.b}; }
INLINE Vec Mul(Vec x, Vec y) { return {x.a * y.a, x.b * y.b}; }
INLINE Vec Div(Vec x, Vec y) { return {x.a / y.a, x.b / y.b}; }
INLINE Vec MulAdd(Vec x, Vec y, Vec z) { return Add(Mul(x, y), z); }
INLINE V4 If(U4 mask, V4 yes, V4 no) { return (V4)((mask & (U4)yes) | (~mask & (U4)no)); }
INLINE Vec Max(Vec x, Vec y) {
  return {If((U4)(x.a > y.a), x.a, y.a), If((U4)(x.b > y.b), x.b, y.b)};
}
INLINE Vec IfLess(Vec x, Vec y, Vec yes, Vec no) {
  return {If((U4)(x.a < y.a), yes.a, no.a), If((U4)(x.b < y.b), yes.b, no.b)};
}
INLINE Vec PowerOfTwo(Vec z) {
  return {(V4)(((U4)z.a << 23) + 0x3f800000u), (V4)(((U4)z.b << 23) + 0x3f800000u)};
}
INLINE float Sum(Vec v) {
  const V4 s = v.a + v.b;
  return (s[0] + s[2]) + (s[1] + s[3]);
}
template <size_t n>
INLINE void SumEach(float* out, const Vec* v) {
  for (size_t i = 0; i < n; ++i) out[i] = Sum(v[i]);
}
INLINE void Transpose(Vec* v) {
  float words[kLanes][kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    float row[kLanes];
    Store(row, v[i]);
    for (size_t j = 0; j < kLanes; ++j) words[j][i] = row[j];
  }
  for (size_t i = 0; i < kLanes; ++i) v[i] = Load(words[i]);
}
INLINE float Larger(float x, float y) { return x > y ? x : y; }
INLINE float MaxOf(Vec v) {
  const V4 s = If((U4)(v.a > v.b), v.a, v.b);
  return Larger(Larger(s[0], s[2]), Larger(s[1], s[3]));
}

// 16-bit elements, as bits in the low half of a lane.
struct Bits {
  U4 a, b;
};
INLINE Bits LoadHalves(const uint16_t* p) {
  uint16_t h[8];
  memcpy(h, p, sizeof(h));
  return {U4{h[0], h[1], h[2], h[3]}, U4{h[4], h[5], h[6], h[7]}};
}
INLINE Vec LoadBF16(const uint16_t* p) {
  const Bits h = LoadHalves(p);
  return {(V4)(h.a << 16), (V4)(h.b << 16)};
}
INLINE Bits LoadPairs(const uint16_t* p) {
  Bits pairs;
  memcpy(&pairs, p, sizeof(pairs));
  return pairs;
}
// The first of a pair is the low half: little-endian machines.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
INLINE Vec LoadBF16Even(const uint16_t* p) {
  const Bits pairs = LoadPairs(p);
  return {(V4)(pairs.a << 16), (V4)(pairs.b << 16)};
}
INLINE Vec LoadBF16Odd(const uint16_t* p) {
  const Bits pairs = LoadPairs(p);
  return {(V4)(pairs.a & 0xffff0000u), (V4)(pairs.b & 0xffff0000u)};
}
INLINE Vec BF16Even(Vec pairs) { return {(V4)((U4)pairs.a << 16), (V4)((U4)pairs.b << 16)}; }
INLINE Vec BF16Odd(Vec pairs) {
  return {(V4)((U4)pairs.a & 0xffff0000u), (V4)((U4)pairs.b & 0xffff0000u)};
}

typedef int32_t I4 __attribute__((vector_size(16)));
INLINE Vec LoadI8(const int8_t* p) {
  const I4 a = {p[0], p[1], p[2], p[3]}, b = {p[4], p[5], p[6], p[7]};
  return {__builtin_convertvector(a, V4), __builtin_convertvector(b, V4)};
}
template <size_t i>
INLINE Vec I8Part(Vec words) {
  constexpr int kUp = 24 - 8 * static_cast<int>(i);
  return {__builtin_convertvector((I4)((U4)words.a << kUp) >> 24, V4),
          __builtin_convertvector((I4)((U4)words.b << kUp) >> 24, V4)};
}

// Exact. Shifting exponent and fraction into place and multiplying by 2^112 corrects the bias and
// normalises subnormals; infinities and NaN have their exponent filled up.
INLINE V4 WidenF16(U4 h) {
  const U4 magnitude = (h & 0x7fffu) << 13;
  const V4 scaled = (V4)magnitude * Set4(0x1p112f);
  const U4 special = (U4)(magnitude >= 0x0f800000u);
  const U4 quiet = (U4)(magnitude > 0x0f800000u) & 0x400000u;
  const U4 bits = (special & (magnitude | 0x7f800000u | quiet)) | (~special & (U4)scaled);
  return (V4)(bits | ((h & 0x8000u) << 16));
}
INLINE Vec LoadF16(const uint16_t* p) {
  const Bits h = LoadHalves(p);
  return {WidenF16(h.a), WidenF16(h.b)};
}

// Round to nearest, ties to even; a NaN stays one.
INLINE U4 RoundBF16(V4 v) {
  const U4 bits = (U4)v;
  const U4 nan = (U4)((bits & 0x7fffffffu) > 0x7f800000u);
  const U4 rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return ((nan & (bits | 0x400000u)) | (~nan & rounded)) >> 16;
}
INLINE void StoreBF16(uint16_t* p, Vec v) {
  const U4 a = RoundBF16(v.a), b = RoundBF16(v.b);
  for (int i = 0; i < 4; ++i) {
    p[i] = static_cast<uint16_t>(a[i]);
    p[4 + i] = static_cast<uint16_t>(b[i]);
  }
}

#include "kernels/cpu/isa/kernels-inl.h"

// ---- Packed matrices ----

// acc[lane] += the products of one run of four. Where there is a table, it has the integers.
INLINE void AddRun(int32_t* acc, const uint8_t* w, int mask, int shift, const uint8_t* table,
                   const int8_t* x) {
  for (int j = 0; j < 4; ++j) {
    for (int lane = 0; lane < kPanelColumns; ++lane) {
      const int code = (w[4 * lane + j] >> shift) & mask;
      acc[lane] += (table != nullptr ? table[code] : code) * x[j];
    }
  }
}

struct Words {
  INLINE static void Widen(float* out, const uint8_t* halves) {
    uint16_t bits[kPanelColumns];
    memcpy(bits, halves, sizeof(bits));
    for (int i = 0; i < kPanelColumns; i += 8) Store(out + i, LoadF16(bits + i));
  }
  INLINE static void Multiply(float* out, const uint8_t* bytes, const uint8_t* halves) {
    Widen(out, halves);
    for (int i = 0; i < kPanelColumns; ++i) {
      out[i] *= static_cast<float>(static_cast<int8_t>(bytes[i]));
    }
  }
};

// kTable: four bits stand for an integer of the groups' table.
template <int kBits, bool kTable>
struct QuantTile : QuantLayout<kBits, 1024> {
  using Layout = QuantLayout<kBits, 1024>;
  using Layout::kRun;
  static constexpr size_t kRows = 1, kPanels = 1, kSmallM = 1, kSmallMPanels = 1;

  template <size_t kM, size_t kP>
  static void Tile(const TileArgs& t) {
    const bool has_minimum = t.groups->format.has_minimum;
    const int32_t offset = kBits == 8 || kTable ? 128 : has_minimum ? 0 : 8;
    const uint8_t* const table = kTable ? t.groups->table : nullptr;
    ForGroups<kRun>(t, [&](size_t group, size_t k, size_t size, const uint8_t* unit, size_t in_unit,
                           const uint8_t* w) {
      float room[2 * kPanelColumns];
      const GroupNumbers numbers = NumbersOf<Words>(*t.groups, unit, in_unit, room);
      const int8_t* x = reinterpret_cast<const int8_t*>(t.x) + k;
      int32_t acc[kPanelColumns];
      const size_t number = group * t.group_stride;
      for (int32_t& a : acc) a = -offset * t.x_sums[number];
      for (size_t run = 0; run < size; run += kRun, w += 64) {
        AddRun(acc, w, kBits == 8 ? 255 : 15, 0, table, x + run);
        if (kBits == 4) AddRun(acc, w, 15, 4, table, x + run + 4);
      }
      const float x_scale = t.x_scales[number];
      const float sum = t.x_scaled_sums[number];
      for (int lane = 0; lane < kPanelColumns; ++lane) {
        float product = static_cast<float>(acc[lane]) * numbers.scales[lane] * x_scale;
        if (has_minimum) product += numbers.minima[lane] * sum;
        t.out[lane] = t.first && group == 0 ? product : t.out[lane] + product;
      }
    });
  }
};

}  // namespace

constinit const KernelTable kScalarKernels =
    MakeTable("scalar", {nullptr, nullptr, Panels<QuantTile<8, false>>, Int4Panels<QuantTile>});

}  // namespace continuo::kernels::cpu
