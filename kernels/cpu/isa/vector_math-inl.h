// SPDX-License-Identifier: Apache-2.0
// Rows of each element type as vectors, exp and tanh, in the words that kernels-inl.h names.
// Included inside an instruction set's unnamed namespace. No include guard: not a header.

constexpr size_t kBlock = 2 * kLanes;

// Readers of rows of each element type, kBlock elements at a time as two vectors. bf16 comes as
// even and odd elements, which are cheaper to widen than neighbours; packed rows have that order.
// Words(p): kLanes words of kWordElements elements, widened where that is one. Part<i>: element i
// of each word as a float.
//
// For types of which a word holds one element:
INLINE Vec LoadOne(const float* p) { return Load(p); }
INLINE Vec LoadOne(const uint16_t* p) { return LoadF16(p); }
template <class Stored>
struct OnePerWord {
  using T = Stored;
  static constexpr size_t kWordElements = 1;
  INLINE static Vec Words(const T* p) { return LoadOne(p); }
  template <size_t>
  INLINE static Vec Part(Vec words) {
    return words;
  }
  INLINE static Vec First(const T* p) { return LoadOne(p); }
  INLINE static Vec Second(const T* p) { return LoadOne(p + kLanes); }
  INLINE static Vec Widen(const T* p) { return LoadOne(p); }
};
struct F32 : OnePerWord<float> {};
struct F16 : OnePerWord<uint16_t> {};

struct BF16 {
  using T = uint16_t;
  static constexpr size_t kWordElements = 2;
  INLINE static Vec Words(const T* p) { return LoadWords(p); }
  template <size_t i>
  INLINE static Vec Part(Vec words) {
    return i == 0 ? BF16Even(words) : BF16Odd(words);
  }
  INLINE static Vec First(const T* p) { return LoadBF16Even(p); }
  INLINE static Vec Second(const T* p) { return LoadBF16Odd(p); }
  INLINE static Vec Widen(const T* p) { return LoadBF16(p); }
};

// Elements of int8 stand for multiples of their row's scale, which is not applied here.
struct I8 {
  using T = int8_t;
  static constexpr size_t kWordElements = 4;
  INLINE static Vec Words(const T* p) { return LoadWords(p); }
  INLINE static Vec Widen(const T* p) { return LoadI8(p); }
  template <size_t i>
  INLINE static Vec Part(Vec words) {
    return I8Part<i>(words);
  }
};

// The first n < kLanes elements, then zeros.
template <class E>
INLINE Vec WidenPart(const void* p, size_t n) {
  typename E::T part[kLanes] = {};
  memcpy(part, p, n * sizeof(part[0]));
  return E::Widen(part);
}
INLINE Vec LoadPart(const float* p, size_t n) { return WidenPart<F32>(p, n); }
INLINE void StorePart(float* p, Vec v, size_t n) {
  float part[kLanes];
  Store(part, v);
  memcpy(p, part, n * sizeof(float));
}

// e^x within 2 ulp; 0 where the result would be below 2^-126, infinity from 88.37 on.
INLINE Vec Exp(Vec x) {
  const Vec z = MulAdd(x, Set(0x1.715476p+0f), Set(kRoundShift));
  const Vec n = Sub(z, Set(kRoundShift));
  // ln 2 in two parts; n times the first is exact.
  const Vec r = MulAdd(n, Set(-0x1.0bfbe8p-15f), MulAdd(n, Set(-0x1.62ep-1f), x));
  Vec p = Set(1.0f / 5040);
  p = MulAdd(p, r, Set(1.0f / 720));
  p = MulAdd(p, r, Set(1.0f / 120));
  p = MulAdd(p, r, Set(1.0f / 24));
  p = MulAdd(p, r, Set(1.0f / 6));
  p = MulAdd(p, r, Set(0.5f));
  p = MulAdd(p, r, Set(1.0f));
  p = MulAdd(p, r, Set(1.0f));
  const Vec y = Mul(p, PowerOfTwo(z));
  return IfLess(x, Set(-87.33654f), Zero(), IfLess(Set(88.37f), x, Set(__builtin_inff()), y));
}

// tanh within 6 ulp; ±1 from about ±9 on. Below 1/4 an odd polynomial, of which the next term is
// below 2^-27 of x; from there on by the exponential, which loses little since 1 - e is large.
INLINE Vec Tanh(Vec x) {
  const Vec zero = Zero(), one = Set(1.0f);
  const Vec size = Max(x, Sub(zero, x));
  const Vec e = Exp(Mul(Set(-2.0f), size));
  const Vec far = Div(Sub(one, e), Add(one, e));
  const Vec square = Mul(x, x);
  Vec p = Set(62.0f / 2835);
  p = MulAdd(p, square, Set(-17.0f / 315));
  p = MulAdd(p, square, Set(2.0f / 15));
  p = MulAdd(p, square, Set(-1.0f / 3));
  p = Mul(p, square);
  const Vec near = MulAdd(p, x, x);
  return IfLess(size, Set(0.25f), near, IfLess(x, zero, Sub(zero, far), far));
}

INLINE Vec Cap(Vec x, Vec cap) { return Mul(cap, Tanh(Div(x, cap))); }

// Prefetches the cache line that lies `ahead` bytes after p, which need not exist, into the L2
// cache: the L1 cache is full of lines in use, and evicts lines that come early before they are
// read.
INLINE void Prefetch(const void* p, size_t ahead) {
  constexpr int kToRead = 0, kSecondCache = 2;
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead), kToRead,
                     kSecondCache);
}
