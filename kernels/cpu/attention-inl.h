// SPDX-License-Identifier: Apache-2.0
// The loops of attention over one span, for an arithmetic A: two products of matrices with a
// softmax between them. Keys and values are packed into panels first: scores have lanes over
// positions, sums of values have lanes over elements of the head, so every output is one
// accumulator over its k in ascending order. Included after vector_math-inl.h. A defines
//
//   Tile                 multiplies, see FloatTile
//   kStep                elements of k that one word of x holds
//   kScaled              keys and values are multiplied by their position's scale
//   PackKeys, PackValues the panels of a span; PackStep: of one position alone
//   AddWord, AddStep     what Tile does for one vector; LoadValues: kD panels of a step;
//   LoadWholeValues      the same of rows that are there and long enough
//   StoreWeights         kLanes weights from position j of a row of scores on, as Tile's x

// out[i * out_stride + ...] (+)= x row i · each panel. A row of x is 4 bytes a step, a panel one
// vector a step.
struct SpanTile {
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
  static void Tile(const SpanTile& t) {
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
static void TileOfQueries(const SpanTile& t, size_t rows) {
  if (rows == kM) return T::template Tile<kM, kP>(t);
  if constexpr (kM < T::kRows) TileOfQueries<T, kP, kM + 1>(t, rows);
}

// All rows of x beside all panels; panels that are used together stay in the first cache.
template <class T>
static void Multiply(const SpanTile& all, size_t num_rows, size_t num_panels) {
  const size_t num_tiles = (num_rows + T::kRows - 1) / T::kRows;
  for (size_t panel = 0; panel < num_panels;) {
    const bool wide = num_panels - panel >= T::kPanels;
    for (size_t tile = 0; tile < num_tiles; ++tile) {
      const size_t row = num_rows * tile / num_tiles;
      const size_t end = num_rows * (tile + 1) / num_tiles;
      SpanTile t = all;
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
INLINE size_t KeyPanelBytes(const SpanArgs& a, size_t step) {
  return (a.stride / step + 1) * sizeof(Vec);
}
constexpr size_t ValuePanelBytes(size_t step) { return (kSpan / step + 1) * sizeof(Vec); }

// Memory that will be read soon, asked for line by line: in the order in which it lies, in which it
// comes fastest.
class Ahead {
 public:
  INLINE Ahead(const MemoryPiece* pieces, const MemoryPiece* end) : next_(pieces), end_(end) {}
  INLINE explicit Ahead(const SpanArgs& a) : Ahead(a.next, a.next_end) {}

  template <size_t kLines>
  INLINE void Ask() {
    if (left_ >= static_cast<ptrdiff_t>(kLines * 64)) {
      UNROLL for (size_t i = 0; i < kLines; ++i) Prefetch(at_, 64 * i);
      at_ += 64 * kLines;
      left_ -= 64 * kLines;
    } else {
      AskSome(kLines);
    }
  }
  __attribute__((noinline)) void AskSome(size_t lines) {
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
  const MemoryPiece* next_;
  const MemoryPiece* end_;
  const char* at_ = nullptr;
  ptrdiff_t left_ = 0;
};

// Words [d, ...) of the keys of positions [j, j + kLanes): word i of each in v[i]. Zeros for what
// is beyond the head or not in [begin, end).
template <class E>
INLINE void LoadKeys(const SpanArgs& a, size_t j, size_t d, size_t begin, size_t end, Vec* v) {
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

// Lines of memory that a LoadKeys reads.
template <class E>
constexpr size_t kLoadLines = (E::kWordElements * kLanes * sizeof(typename E::T) * kLanes + 63) /
                              64;

// The panels of keys of the positions [begin, end), zeros for others that share a panel with them.
template <class E, class StoreWord>
INLINE void PackKeyPanels(const SpanArgs& a, size_t begin, size_t end, Ahead& ahead,
                          StoreWord store) {
  constexpr size_t kElements = E::kWordElements * kLanes;
  for (size_t j = begin / kLanes * kLanes; j < end; j += kLanes) {
    for (size_t d = 0; d < a.head_dim; d += kElements) {
      ahead.template Ask<kLoadLines<E>>();
      Vec v[kLanes];
      LoadKeys<E>(a, j, d, begin, end, v);
      UNROLL for (size_t i = 0; i < kLanes; ++i) store(j / kLanes, d + i * E::kWordElements, v[i]);
    }
  }
}

// Everything in floats.
template <class E>
struct FloatAttention {
  using Elements = E;
  using T = typename E::T;
  static constexpr bool kScaled = sizeof(T) == 1;
  using Tile = FloatTile;
  static constexpr size_t kStep = 1;

  static void PackKeys(const SpanArgs& a, size_t begin, size_t end, Ahead& ahead) {
    char* const panels = reinterpret_cast<char*>(a.key_panels);
    const size_t panel_bytes = KeyPanelBytes(a, kStep);
    PackKeyPanels<E>(a, begin, end, ahead, [&](size_t panel, size_t d, Vec word) {
      float* out = reinterpret_cast<float*>(panels + panel * panel_bytes) + d * kLanes;
      Store(out, E::template Part<0>(word));
      if constexpr (E::kWordElements > 1) Store(out + kLanes, E::template Part<1>(word));
      if constexpr (E::kWordElements > 2) {
        Store(out + 2 * kLanes, E::template Part<2>(word));
        Store(out + 3 * kLanes, E::template Part<3>(word));
      }
    });
  }

  static void PackValues(const SpanArgs& a, size_t begin, size_t end, Ahead& ahead) {
    constexpr size_t kPanel = ValuePanelBytes(kStep) / sizeof(float);
    for (size_t j = begin; j < end; ++j) {
      ahead.AskSome((a.head_dim * sizeof(T) + 63) / 64);
      float* out = a.value_panels + j * kLanes;
      for (size_t d = 0; d < a.head_dim; d += kLanes, out += kPanel) {
        Vec value;
        LoadValues<1>(a, a.values[j], nullptr, d, &value);
        Store(out, value);
      }
    }
  }
  static void PackStep(const SpanArgs&, size_t) {}

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
  INLINE static void LoadValues(const SpanArgs& a, const void* value, const void*, size_t d,
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

// Turns one query's scores, of the vectors that hold positions [begin, end), into
// e^(score - maximum), zero where not seen, as A multiplies them. Returns their sums in lanes.
template <class A>
INLINE Vec Softmax(const SpanArgs& a, size_t query, float* maximum) {
  float* const scores = a.scores + query * kSpan;
  const size_t begin = a.begin[query], end = a.end[query];
  const size_t first = begin / kLanes * kLanes, last = (end + kLanes - 1) / kLanes * kLanes;
  const Vec scale = Set(a.scale);
  for (size_t j = first; j < last; j += kLanes) {
    Vec s = Load(scores + j);
    if constexpr (A::kScaled) s = Mul(s, Load(a.key_scales + j));
    s = Mul(s, scale);
    Store(scores + j, a.softcap == 0 ? s : Cap(s, Set(a.softcap)));
  }
  for (size_t j = first; j < begin; ++j) scores[j] = -__builtin_inff();
  for (size_t j = end; j < last; ++j) scores[j] = -__builtin_inff();
  Vec top = Load(scores + first);
  for (size_t j = first + kLanes; j < last; j += kLanes) top = Max(top, Load(scores + j));
  *maximum = MaxOf(top);
  const Vec shift = Set(*maximum);
  Vec sum = Zero();
  for (size_t j = first; j < last; j += kLanes) {
    const Vec e = Exp(Sub(Load(scores + j), shift));
    A::StoreWeights(scores, j, A::kScaled ? Mul(e, Load(a.value_scales + j)) : e);
    sum = Add(sum, e);
  }
  return sum;
}

// span_out of queries [first_query, end_query) += their weights · values, over positions
// [begin, end) that all of them see, ascending. `first`: written instead.
template <class A>
static void AddValues(const SpanArgs& a, size_t first_query, size_t end_query, size_t begin,
                      size_t end, bool first) {
  SpanTile t;
  t.out = a.span_out + first_query * a.stride;
  t.out_stride = a.stride;
  t.x_stride = kSpan * sizeof(float);
  const char* const x = reinterpret_cast<const char*>(a.scores + first_query * kSpan);
  const size_t num_panels = (a.head_dim + kLanes - 1) / kLanes;
  // A position whose neighbours in its step are not seen: those may hold NaN, so zeros stand for
  // them.
  const auto add_one = [&](size_t j) {
    A::PackStep(a, j);
    t.x = x + j / A::kStep * sizeof(float);
    t.w = reinterpret_cast<const char*>(a.step_panels);
    t.panel_stride = sizeof(Vec);
    t.steps = 1;
    t.first = false;
    Multiply<typename A::Tile>(t, end_query - first_query, num_panels);
  };
  for (; begin % A::kStep != 0 && begin < end; ++begin) add_one(begin);
  const size_t whole = end / A::kStep * A::kStep;
  if (begin < whole) {
    t.x = x + begin / A::kStep * sizeof(float);
    t.w = reinterpret_cast<const char*>(a.value_panels) + begin / A::kStep * sizeof(Vec);
    t.panel_stride = ValuePanelBytes(A::kStep);
    t.steps = (whole - begin) / A::kStep;
    t.first = first;
    Multiply<typename A::Tile>(t, end_query - first_query, num_panels);
    begin = whole;
  }
  for (; begin < end; ++begin) add_one(begin);
}

// The same for what each of the queries sees of [from, to), which are whole steps: what all see
// together, what is left by halves of them.
template <class A>
static void WeighValues(const SpanArgs& a, size_t first_query, size_t end_query, int from, int to,
                        bool first) {
  const auto cut = [&](int position) {
    return position < from ? from : position > to ? to : position;
  };
  const int begin = cut(a.begin[first_query]), last_begin = cut(a.begin[end_query - 1]);
  const int first_end = cut(a.end[first_query]), end = cut(a.end[end_query - 1]);
  if (begin >= end) return;
  if (begin == last_begin && first_end == end) {
    return AddValues<A>(a, first_query, end_query, begin, end, first);
  }
  const auto halves = [&](int some_from, int some_to) {
    const size_t middle = first_query + (end_query - first_query) / 2;
    WeighValues<A>(a, first_query, middle, some_from, some_to, false);
    WeighValues<A>(a, middle, end_query, some_from, some_to, false);
  };
  constexpr int kStep = A::kStep;
  const int common_begin = (last_begin + kStep - 1) / kStep * kStep;
  const int common_end = first_end / kStep * kStep;
  if (common_begin >= common_end) return halves(from, to);
  if (begin < common_begin) halves(from, common_begin);
  AddValues<A>(a, first_query, end_query, common_begin, common_end, first);
  if (common_end < end) halves(common_end, to);
}

// With m = max(m1, m2): sum = s1·e^(m1-m) + s2·e^(m2-m), out likewise. Nothing seen yet is a
// maximum of -infinity, a sum of zero and a vector of zeros.
INLINE void Merge(const SpanArgs& a, size_t first_query, size_t n, const float* max,
                  const float* sum) {
  const Vec old_max = Load(a.max + first_query), new_max = Load(max);
  const Vec top = Max(old_max, new_max);
  const Vec before = Exp(Sub(old_max, top)), here = Exp(Sub(new_max, top));
  float tops[kLanes], sums[kLanes], befores[kLanes], heres[kLanes];
  Store(tops, top);
  Store(sums, MulAdd(Load(sum), here, Mul(Load(a.sum + first_query), before)));
  Store(befores, before);
  Store(heres, here);
  for (size_t i = 0; i < n; ++i) {
    const size_t query = first_query + i;
    if (a.begin[query] >= a.end[query]) continue;
    a.max[query] = tops[i];
    a.sum[query] = sums[i];
    const Vec old_factor = Set(befores[i]), new_factor = Set(heres[i]);
    float* out = a.out + query * a.stride;
    const float* span_out = a.span_out + query * a.stride;
    for (size_t d = 0; d < a.head_dim; d += kLanes) {
      Store(out + d, MulAdd(Load(span_out + d), new_factor, Mul(Load(out + d), old_factor)));
    }
  }
}

// ---- A few queries that see the same positions: keys and values are read once, and kept nowhere

constexpr size_t kFewQueries = 4;

// acc += the keys of one panel from element d on · q, whose words are at `words`, query by query in
// turn. kRun: the panel is whole and a run of rows at `keys`, the words are too; `next`: what is
// read soon, for the first cache.
template <class A, size_t kQ, bool kRun>
INLINE void ScorePart(const SpanArgs& a, Vec* acc, const char* words, size_t j, size_t d,
                      size_t begin, size_t end, const char* keys, const char* next) {
  using E = typename A::Elements;
  Vec v[kLanes];
  if constexpr (kRun) {
    const size_t row_bytes = a.head_dim * sizeof(typename E::T);
    UNROLL for (size_t i = 0; i < kLoadLines<E>; ++i) __builtin_prefetch(next + 64 * i);
    keys += d * sizeof(typename E::T);
    asm("" : "+r"(keys));  // else all rows' addresses are computed in advance, and find no register
    UNROLL for (size_t i = 0; i < kLanes; ++i) {
      v[i] = E::Words(reinterpret_cast<const typename E::T*>(keys + i % 3 * row_bytes));
      if (i % 3 == 2) keys += 3 * row_bytes;
    }
    Transpose(v);
  } else {
    LoadKeys<E>(a, j, d, begin, end, v);
  }
  UNROLL for (size_t i = 0; i < kLanes; ++i) {
    UNROLL for (size_t m = 0; m < kQ; ++m) {
      acc[m] = A::AddWord(acc[m], words + (i * kQ + m) * A::kWordBytes, v[i]);
    }
  }
}

// scores = keys · q, two panels in turn, so that one's sums need not be waited for.
template <class A, size_t kQ>
static void ScoreFew(const SpanArgs& a, size_t begin, size_t end, Ahead& ahead) {
  using E = typename A::Elements;
  constexpr size_t kElements = E::kWordElements * kLanes;
  constexpr size_t kPartBytes = kLanes * kQ * A::kWordBytes;
  char* const words = reinterpret_cast<char*>(a.key_panels);  // not needed otherwise
  for (size_t i = 0; i * E::kWordElements < a.stride; ++i) {
    UNROLL for (size_t m = 0; m < kQ; ++m) {
      memcpy(words + (i * kQ + m) * A::kWordBytes,
             static_cast<const char*>(a.q) + m * a.q_stride + i * A::kWordBytes, A::kWordBytes);
    }
  }
  const bool runs = a.runs && begin % kLanes == 0 && a.head_dim % kElements == 0;
  size_t j = begin / kLanes * kLanes;
  for (; runs && j + 2 * kLanes <= end; j += 2 * kLanes) {
    Vec first[kQ], second[kQ];
    UNROLL for (size_t i = 0; i < kQ; ++i) first[i] = second[i] = Zero();
    const char* const keys = static_cast<const char*>(a.keys[j]);
    const char* const more = static_cast<const char*>(a.keys[j + kLanes]);
    const bool is_last = j + 4 * kLanes > end;
    const char* next = is_last ? keys : static_cast<const char*>(a.keys[j + 2 * kLanes]);
    const char* next_more = is_last ? more : static_cast<const char*>(a.keys[j + 3 * kLanes]);
    const char* part = words;
    for (size_t d = 0; d < a.head_dim; d += kElements, part += kPartBytes) {
      ahead.template Ask<kLoadLines<E>>();
      ScorePart<A, kQ, true>(a, first, part, j, d, begin, end, keys, next);
      ahead.template Ask<kLoadLines<E>>();
      ScorePart<A, kQ, true>(a, second, part, j, d, begin, end, more, next_more);
      next += kLoadLines<E> * 64;
      next_more += kLoadLines<E> * 64;
    }
    UNROLL for (size_t m = 0; m < kQ; ++m) {
      Store(a.scores + m * kSpan + j, first[m]);
      Store(a.scores + m * kSpan + j + kLanes, second[m]);
    }
  }
  for (; j < end; j += kLanes) {
    Vec acc[kQ];
    UNROLL for (size_t i = 0; i < kQ; ++i) acc[i] = Zero();
    const char* part = words;
    for (size_t d = 0; d < a.head_dim; d += kElements, part += kPartBytes) {
      ahead.template Ask<kLoadLines<E>>();
      ScorePart<A, kQ, false>(a, acc, part, j, d, begin, end, nullptr, nullptr);
    }
    UNROLL for (size_t m = 0; m < kQ; ++m) Store(a.scores + m * kSpan + j, acc[m]);
  }
}

// acc += the weights of one step, kSpan apart from query to query, · its values.
template <class A, size_t kQ, size_t kD>
INLINE void AddStep(Vec (&acc)[kQ][kD], const float* weights, const Vec* values) {
  UNROLL for (size_t m = 0; m < kQ; ++m) {
    UNROLL for (size_t i = 0; i < kD; ++i) {
      acc[m][i] = A::AddStep(acc[m][i], weights + m * kSpan, values[i]);
    }
  }
}

// span_out of kD panels from element d on.
template <class A, size_t kQ, size_t kD>
INLINE void WeighFew(const SpanArgs& a, size_t d, size_t begin, size_t end, Ahead& ahead) {
  constexpr size_t kStep = A::kStep;
  constexpr size_t kLines = kStep * kD * kLanes * sizeof(typename A::T) / 64;
  Vec acc[kQ][kD];
  UNROLL for (size_t m = 0; m < kQ; ++m) {
    UNROLL for (size_t i = 0; i < kD; ++i) acc[m][i] = Zero();
  }
  size_t j = begin / kStep * kStep;
  const size_t whole = end / kStep * kStep;
  if (a.runs && j == begin && d + kD * kLanes <= a.head_dim) {
    const size_t row_bytes = a.head_dim * sizeof(typename A::T);
    while (j < whole) {
      size_t stop = (j + kSpanRun) / kSpanRun * kSpanRun;
      stop = stop < whole ? stop : whole;
      const char* row = static_cast<const char*>(a.values[j]) + d * sizeof(typename A::T);
      for (; j < stop; j += kStep, row += kStep * row_bytes) {
        ahead.template Ask<kLines>();
        Vec values[kD];
        A::template LoadWholeValues<kD>(row, row + row_bytes, values);
        AddStep<A>(acc, a.scores + j / kStep, values);
      }
    }
  }
  for (; j < end; j += kStep) {
    ahead.AskSome(kLines);
    const void* const odd = kStep > 1 && j + 1 < end ? a.values[j + 1] : nullptr;
    Vec values[kD];
    A::template LoadValues<kD>(a, j < begin ? nullptr : a.values[j], odd, d, values);
    AddStep<A>(acc, a.scores + j / kStep, values);
  }
  UNROLL for (size_t m = 0; m < kQ; ++m) {
    UNROLL for (size_t i = 0; i < kD; ++i) {
      Store(a.span_out + m * a.stride + d + i * kLanes, acc[m][i]);
    }
  }
}

template <class A, size_t kQ>
static void WeighFewValues(const SpanArgs& a, size_t begin, size_t end, Ahead& ahead) {
  constexpr size_t kMost = kFewAccumulators >= 8 * kQ ? 8 : kFewAccumulators >= 4 * kQ ? 4 : 2;
  size_t d = 0;
  for (; d + kMost * kLanes <= a.stride; d += kMost * kLanes) {
    WeighFew<A, kQ, kMost>(a, d, begin, end, ahead);
  }
  for (; d < a.stride; d += 2 * kLanes) WeighFew<A, kQ, 2>(a, d, begin, end, ahead);
}

template <class A>
static void AttendSpan(const SpanArgs& a) {
  // Ranges do not decrease from query to query, so the union is from the first to the last.
  const size_t last = a.num_queries - 1;
  const size_t begin = a.begin[0], end = a.end[last];
  if (begin >= end) return;
  Ahead ahead(a);
  const bool few =
      a.num_queries <= kFewQueries && a.begin[0] == a.begin[last] && a.end[0] == a.end[last];
  if (few) {
    switch (a.num_queries) {
      case 1:
        ScoreFew<A, 1>(a, begin, end, ahead);
        break;
      case 2:
        ScoreFew<A, 2>(a, begin, end, ahead);
        break;
      case 3:
        ScoreFew<A, 3>(a, begin, end, ahead);
        break;
      case 4:
        ScoreFew<A, 4>(a, begin, end, ahead);
        break;
    }
  } else {
    A::PackKeys(a, begin, end, ahead);
    SpanTile t;
    const size_t panel = begin / kLanes;
    t.panel_stride = KeyPanelBytes(a, A::kStep);
    t.out = a.scores + panel * kLanes;
    t.out_stride = kSpan;
    t.x = static_cast<const char*>(a.q);
    t.x_stride = a.q_stride;
    t.w = reinterpret_cast<const char*>(a.key_panels) + panel * t.panel_stride;
    t.steps = (a.head_dim + A::kStep - 1) / A::kStep;
    t.first = true;
    Multiply<typename A::Tile>(t, a.num_queries, (end + kLanes - 1) / kLanes - panel);
  }

  float max[kMaxQueries + kLanes], sum[kMaxQueries + kLanes];
  for (size_t i = 0; i < a.num_queries; i += kLanes) {
    Vec sums[kLanes];
    for (size_t j = 0; j < kLanes; ++j) {
      max[i + j] = 0;
      const bool sees = i + j <= last && a.begin[i + j] < a.end[i + j];
      sums[j] = sees ? Softmax<A>(a, i + j, max + i + j) : Zero();
    }
    SumEach<kLanes>(sum + i, sums);
  }

  if (few) {
    switch (a.num_queries) {
      case 1:
        WeighFewValues<A, 1>(a, begin, end, ahead);
        break;
      case 2:
        WeighFewValues<A, 2>(a, begin, end, ahead);
        break;
      case 3:
        WeighFewValues<A, 3>(a, begin, end, ahead);
        break;
      case 4:
        WeighFewValues<A, 4>(a, begin, end, ahead);
        break;
    }
  } else {
    A::PackValues(a, begin, end, ahead);
    // Where all begin together and none is done before the first step ends, that step writes.
    const bool first = a.begin[0] == a.begin[last] && begin % A::kStep == 0 &&
                       a.end[0] >= static_cast<int>(begin + A::kStep);
    if (!first) memset(a.span_out, 0, a.num_queries * a.stride * sizeof(float));
    WeighValues<A>(a, 0, a.num_queries, 0, kSpan, first);
  }
  for (size_t i = 0; i < a.num_queries; i += kLanes) {
    const size_t left = a.num_queries - i;
    Merge(a, i, left < kLanes ? left : kLanes, max + i, sum + i);
  }
}
