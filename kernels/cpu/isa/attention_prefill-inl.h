// SPDX-License-Identifier: Apache-2.0
// Attention's keys and values as panels, and the product of matrices that takes them: lanes over
// positions for scores, over elements of the head for sums of values. Included by attention-inl.h,
// which says what an arithmetic defines.

// out[i * out_stride + ...] (+)= x row i · each panel. A row of x is 4 bytes a step, a panel one
// vector a step.
struct ChunkTile {
  float* out;
  size_t out_stride;
  const char* x;
  size_t x_stride;  // bytes
  const char* w;
  size_t panel_stride;  // bytes
  size_t steps;
  bool first;  // out is written, not added to
};

// Multiply-adds of floats.
struct FloatTile {
  static constexpr size_t kRows = kQueryTile, kPanels = kPanelTile;

  template <size_t kM, size_t kP>
  static void Tile(const ChunkTile& t) {
    Vec acc[kM][kP];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP; ++p) {
        acc[i][p] = t.first ? Zero() : Load(t.out + i * t.out_stride + p * kLanes);
      }
    }
    // Rows of x, three to a pointer: what a machine instruction can address by itself.
    const char* x[(kM + 2) / 3];
    UNROLL for (size_t i = 0; i < kM; i += 3) x[i / 3] = t.x + i * t.x_stride;
    const char* w = t.w;
    for (size_t k = 0; k < t.steps; ++k, w += sizeof(Vec)) {
      Vec ws[kP];
      UNROLL for (size_t p = 0; p < kP; ++p) {
        ws[p] = Load(reinterpret_cast<const float*>(w + p * t.panel_stride));
      }
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const char* row = x[i / 3] + i % 3 * t.x_stride;
        const Vec v = Keep(Set(*reinterpret_cast<const float*>(row)));
        UNROLL for (size_t p = 0; p < kP; ++p) acc[i][p] = MulAdd(v, ws[p], acc[i][p]);
      }
      UNROLL for (size_t i = 0; i < kM; i += 3) x[i / 3] += sizeof(float);
    }
    UNROLL for (size_t i = 0; i < kM; ++i) {
      UNROLL for (size_t p = 0; p < kP; ++p) {
        Store(t.out + i * t.out_stride + p * kLanes, acc[i][p]);
      }
    }
  }
};

template <class T, size_t kP, size_t kM = 1>
static void TileOfQueries(const ChunkTile& t, size_t rows) {
  if (rows == kM) return T::template Tile<kM, kP>(t);
  if constexpr (kM < T::kRows) TileOfQueries<T, kP, kM + 1>(t, rows);
}

// All rows of x times all panels; panels that are used together stay in the L1 cache.
template <class T>
static void Multiply(const ChunkTile& all, size_t num_rows, size_t num_panels) {
  const size_t num_tiles = (num_rows + T::kRows - 1) / T::kRows;
  for (size_t panel = 0; panel < num_panels;) {
    const bool wide = num_panels - panel >= T::kPanels;
    for (size_t tile = 0; tile < num_tiles; ++tile) {
      const size_t row = num_rows * tile / num_tiles;
      const size_t end = num_rows * (tile + 1) / num_tiles;
      ChunkTile t = all;
      t.out += row * all.out_stride + panel * kLanes;
      t.x += row * all.x_stride;
      t.w += panel * all.panel_stride;
      if (wide) {
        TileOfQueries<T, T::kPanels>(t, end - row);
      } else {
        TileOfQueries<T, 1>(t, end - row);
      }
    }
    panel += wide ? T::kPanels : 1;
  }
}

// Bytes between panels: of keys, with a step per kStep elements of the head; of values, with one
// per kStep positions. One vector more than that, so that panels do not share their cache sets.
INLINE size_t KeyPanelBytes(const KvChunkArgs& a, size_t step) {
  return (a.stride / step + 1) * sizeof(Vec);
}
constexpr size_t ValuePanelBytes(size_t step) { return (kKvChunk / step + 1) * sizeof(Vec); }

// Prefetches memory that is read soon, line by line in the order of its addresses, which is the
// fastest.
class Prefetcher {
 public:
  INLINE Prefetcher(const MemoryRange* ranges, const MemoryRange* end) : next_(ranges), end_(end) {}
  INLINE explicit Prefetcher(const KvChunkArgs& a) : Prefetcher(a.next, a.next_end) {}

  template <size_t kLines>
  INLINE void Next() {
    if (left_ >= static_cast<ptrdiff_t>(kLines * 64)) {
      UNROLL for (size_t i = 0; i < kLines; ++i) Prefetch(at_, 64 * i);
      at_ += 64 * kLines;
      left_ -= 64 * kLines;
    } else {
      NextSome(kLines);
    }
  }
  __attribute__((noinline)) void NextSome(size_t lines) {
    for (; lines > 0; --lines) {
      if (left_ <= 0) {
        if (next_ == end_) return;
        at_ = next_->data;
        left_ = next_->bytes;
        ++next_;
      }
      Prefetch(at_, 0);
      at_ += 64;
      left_ -= 64;
    }
  }

 private:
  const MemoryRange* next_;
  const MemoryRange* end_;
  const char* at_ = nullptr;
  ptrdiff_t left_ = 0;
};

// Words [d, ...) of the keys of positions [j, j + kLanes): word i of each in v[i]. Zeros for what
// is beyond the head or not in [begin, end).
template <class E>
INLINE void LoadKeys(const KvChunkArgs& a, size_t j, size_t d, size_t begin, size_t end, Vec* v) {
  using T = typename E::T;
  constexpr size_t kElements = E::kWordElements * kLanes;
  if (j >= begin && j + kLanes <= end && d + kElements <= a.head_dim) {
    UNROLL for (size_t i = 0; i < kLanes; ++i) {
      v[i] = E::Words(static_cast<const T*>(a.keys[j + i]) + d);
    }
  } else {
    const size_t n = a.head_dim - d < kElements ? a.head_dim - d : kElements;
    UNROLL for (size_t i = 0; i < kLanes; ++i) {
      T part[kElements] = {};
      if (j + i >= begin && j + i < end) {
        memcpy(part, static_cast<const T*>(a.keys[j + i]) + d, n * sizeof(T));
      }
      v[i] = E::Words(part);
    }
  }
  Transpose(v);
}

// The number of cache lines that one LoadKeys reads.
template <class E>
constexpr size_t kLoadLines = (E::kWordElements * kLanes * sizeof(typename E::T) * kLanes + 63) /
                              64;

// The panels of keys of the positions [begin, end), zeros for others that share a panel with them.
template <class E, class StoreWord>
INLINE void PackKeyPanels(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher,
                          StoreWord store) {
  constexpr size_t kElements = E::kWordElements * kLanes;
  for (size_t j = begin / kLanes * kLanes; j < end; j += kLanes) {
    for (size_t d = 0; d < a.head_dim; d += kElements) {
      prefetcher.template Next<kLoadLines<E>>();
      Vec v[kLanes];
      LoadKeys<E>(a, j, d, begin, end, v);
      UNROLL for (size_t i = 0; i < kLanes; ++i) store(j / kLanes, d + i * E::kWordElements, v[i]);
    }
  }
}

// The arithmetic in floats.
template <class E>
struct FloatAttention {
  using Elements = E;
  using T = typename E::T;
  static constexpr bool kScaled = sizeof(T) == 1;
  using Tile = FloatTile;
  static constexpr size_t kStep = 1;

  static void PackKeys(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher) {
    char* const panels = reinterpret_cast<char*>(a.key_panels);
    const size_t panel_bytes = KeyPanelBytes(a, kStep);
    PackKeyPanels<E>(a, begin, end, prefetcher, [&](size_t panel, size_t d, Vec word) {
      float* out = reinterpret_cast<float*>(panels + panel * panel_bytes) + d * kLanes;
      Store(out, E::template Part<0>(word));
      if constexpr (E::kWordElements > 1) Store(out + kLanes, E::template Part<1>(word));
      if constexpr (E::kWordElements > 2) {
        Store(out + 2 * kLanes, E::template Part<2>(word));
        Store(out + 3 * kLanes, E::template Part<3>(word));
      }
    });
  }

  static void PackValues(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher) {
    constexpr size_t kPanel = ValuePanelBytes(kStep) / sizeof(float);
    for (size_t j = begin; j < end; ++j) {
      prefetcher.NextSome((a.head_dim * sizeof(T) + 63) / 64);
      float* out = a.value_panels + j * kLanes;
      for (size_t d = 0; d < a.head_dim; d += kLanes, out += kPanel) {
        Vec value;
        LoadValues<1>(a, a.values[j], nullptr, d, &value);
        Store(out, value);
      }
    }
  }
  static void PackStep(const KvChunkArgs&, size_t) {}

  // acc += the query's elements at `q` · the keys that a transposed word of LoadKeys holds.
  INLINE static Vec AddWord(Vec acc, const char* q, Vec word) {
    const float* x = reinterpret_cast<const float*>(q);
    acc = MulAdd(Set(x[0]), E::template Part<0>(word), acc);
    if constexpr (E::kWordElements > 1) acc = MulAdd(Set(x[1]), E::template Part<1>(word), acc);
    if constexpr (E::kWordElements > 2) {
      acc = MulAdd(Set(x[2]), E::template Part<2>(word), acc);
      acc = MulAdd(Set(x[3]), E::template Part<3>(word), acc);
    }
    return acc;
  }
  static constexpr size_t kWordBytes = E::kWordElements * sizeof(float);  // of q

  // kD panels of one step from element d on.
  template <size_t kD>
  INLINE static void LoadValues(const KvChunkArgs& a, const void* value, const void*, size_t d,
                                Vec* out) {
    const T* p = static_cast<const T*>(value) + d;
    if (d + kD * kLanes <= a.head_dim) {
      UNROLL for (size_t i = 0; i < kD; ++i) out[i] = E::Widen(p + i * kLanes);
    } else {
      UNROLL for (size_t i = 0; i < kD; ++i) {
        const size_t at = d + i * kLanes;
        out[i] = at + kLanes <= a.head_dim ? E::Widen(p + i * kLanes)
                 : at < a.head_dim         ? WidenPart<E>(p + i * kLanes, a.head_dim - at)
                                           : Zero();
      }
    }
  }
  template <size_t kD>
  INLINE static void LoadWholeValues(const char* value, const char*, Vec* out) {
    UNROLL for (size_t i = 0; i < kD; ++i) {
      out[i] = E::Widen(reinterpret_cast<const T*>(value) + i * kLanes);
    }
  }
  INLINE static Vec AddStep(Vec acc, const float* weight, Vec values) {
    return MulAdd(Set(*weight), values, acc);
  }
  INLINE static void StoreWeights(float* row, size_t j, Vec weights) { Store(row + j, weights); }
};
