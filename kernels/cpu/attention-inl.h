// SPDX-License-Identifier: Apache-2.0
// The loops of attention. Included by kernels-inl.h alone, with all that stands before it there.

// Asks for the rows [begin, end) in advance: they lie scattered.
INLINE void PrefetchRows(const void* const* rows, size_t begin, size_t end, size_t bytes) {
  for (size_t i = begin; i < end; ++i) {
    for (size_t at = 0; at < bytes; at += 64) Prefetch(rows[i], at);
  }
}

// scores = keys · q for the positions [begin, end) of the span. Meanwhile the values of these
// positions are on their way, as the next span's keys are while values are added.
template <class E>
static void Scores(const SpanArgs& a, size_t begin, size_t end) {
  using T = typename E::T;
  const T* const* keys = reinterpret_cast<const T* const*>(a.keys);
  const size_t bytes = a.head_dim * sizeof(T);
  size_t j = begin;
  for (; j + kColTile <= end; j += kColTile) {
    PrefetchRows(a.values, j, j + kColTile, bytes);
    DotColumns<E, kColTile, false>(a.scores + j, kSpan, a.q, a.q_stride, a.num_queries, keys + j,
                                   a.head_dim, 0);
  }
  PrefetchRows(a.values, j, end, bytes);
  for (; j < end; ++j) {
    DotColumns<E, 1, false>(a.scores + j, kSpan, a.q, a.q_stride, a.num_queries, keys + j,
                            a.head_dim, 0);
  }
}

// Turns one query's scores into e^(score - maximum), zero where not seen; returns the sum.
static float Softmax(float* scores, size_t begin, size_t end, float scale, float softcap,
                     float* maximum) {
  Vec top = Set(-__builtin_inff());
  for (size_t j = 0; j < kSpan; j += kLanes) {
    const Vec s = Mul(Load(scores + j), Set(scale));
    Store(scores + j, softcap == 0 ? s : Cap(s, Set(softcap)));
  }
  for (size_t j = 0; j < begin; ++j) scores[j] = -__builtin_inff();
  for (size_t j = end; j < kSpan; ++j) scores[j] = -__builtin_inff();
  for (size_t j = 0; j < kSpan; j += kLanes) top = Max(top, Load(scores + j));
  *maximum = MaxOf(top);
  Vec sum = Zero();
  for (size_t j = 0; j < kSpan; j += kLanes) {
    const Vec e = Exp(Sub(Load(scores + j), Set(*maximum)));
    Store(scores + j, e);
    sum = Add(sum, e);
  }
  return Sum(sum);
}

// span_out[i][d...] += Σ scores[i][j] · values[j][d...], j ascending in [begin, end), for kM
// queries and kD vectors from element d on; `part` > 0: one vector of that many elements. The
// first queries of a span ask for the same part of the next keys.
template <class E, size_t kM, size_t kD>
INLINE void AddValues(const SpanArgs& a, size_t query, size_t d, size_t part, size_t begin,
                      size_t end) {
  using T = typename E::T;
  float* out = a.span_out + query * a.out_stride + d;
  const float* weights = a.scores + query * kSpan;
  const size_t num_next = query == 0 ? static_cast<size_t>(a.num_next) : 0;
  Vec acc[kM][kD];
  UNROLL for (size_t i = 0; i < kM; ++i) {
    UNROLL for (size_t v = 0; v < kD; ++v) acc[i][v] = Load(out + i * a.out_stride + v * kLanes);
  }
  for (size_t j = begin; j < end; ++j) {
    const T* value = static_cast<const T*>(a.values[j]) + d;
    if (j < num_next) {
      for (size_t at = 0; at < kD * kLanes * sizeof(T); at += 64) {
        Prefetch(a.next_keys[j], d * sizeof(T) + at);
      }
    }
    Vec values[kD];
    UNROLL for (size_t v = 0; v < kD; ++v) {
      values[v] = part > 0 ? WidenPart<E>(value, part) : E::Widen(value + v * kLanes);
    }
    UNROLL for (size_t i = 0; i < kM; ++i) {
      const Vec weight = Set(weights[i * kSpan + j]);
      UNROLL for (size_t v = 0; v < kD; ++v) acc[i][v] = MulAdd(weight, values[v], acc[i][v]);
    }
  }
  UNROLL for (size_t i = 0; i < kM; ++i) {
    UNROLL for (size_t v = 0; v < kD; ++v) Store(out + i * a.out_stride + v * kLanes, acc[i][v]);
  }
}

// All elements of the values, for kM queries that see the same positions.
template <class E, size_t kM>
static void AddValueRows(const SpanArgs& a, size_t query, size_t begin, size_t end) {
  if (begin >= end) return;
  size_t d = 0;
  for (; d + kValueTile * kLanes <= a.head_dim; d += kValueTile * kLanes) {
    AddValues<E, kM, kValueTile>(a, query, d, 0, begin, end);
  }
  for (; d + kLanes <= a.head_dim; d += kLanes) AddValues<E, kM, 1>(a, query, d, 0, begin, end);
  if (d < a.head_dim) AddValues<E, kM, 1>(a, query, d, a.head_dim - d, begin, end);
}

// kM queries, each over the positions it sees: those that all see share the values' loads.
template <class E, size_t kM>
static void WeighValues(const SpanArgs& a, size_t query) {
  const int* begin = a.begin + query;
  const int* end = a.end + query;
  const int common_begin = begin[kM - 1];
  const int common_end = end[0];
  if (common_begin >= common_end) {
    for (size_t i = 0; i < kM; ++i) AddValueRows<E, 1>(a, query + i, begin[i], end[i]);
    return;
  }
  for (size_t i = 0; i < kM; ++i) AddValueRows<E, 1>(a, query + i, begin[i], common_begin);
  AddValueRows<E, kM>(a, query, common_begin, common_end);
  for (size_t i = 0; i < kM; ++i) AddValueRows<E, 1>(a, query + i, common_end, end[i]);
}

// With m = max(m1, m2): sum = s1·e^(m1-m) + s2·e^(m2-m), out likewise.
static void Merge(const SpanArgs& a, size_t query, float max, float sum) {
  float* out = a.out + query * a.out_stride;
  const float* span_out = a.span_out + query * a.out_stride;
  if (a.sum[query] == 0) {
    a.max[query] = max;
    a.sum[query] = sum;
    memcpy(out, span_out, a.out_stride * sizeof(float));
    return;
  }
  const Vec top = Max(Set(a.max[query]), Set(max));
  const Vec before = Exp(Sub(Set(a.max[query]), top));
  const Vec here = Exp(Sub(Set(max), top));
  float lanes[kLanes];
  Store(lanes, MulAdd(Set(sum), here, Mul(Set(a.sum[query]), before)));
  a.sum[query] = lanes[0];
  Store(lanes, top);
  a.max[query] = lanes[0];
  for (size_t d = 0; d < a.out_stride; d += kLanes) {
    Store(out + d, MulAdd(Load(span_out + d), here, Mul(Load(out + d), before)));
  }
}

template <class E>
static void AttendSpan(const SpanArgs& a) {
  // Ranges do not decrease from query to query, so the union is from the first to the last.
  const size_t last = a.num_queries - 1;
  if (a.begin[0] >= a.end[last]) return;
  Scores<E>(a, a.begin[0], a.end[last]);
  memset(a.span_out, 0, a.num_queries * a.out_stride * sizeof(float));
  float max[kMaxQueries], sum[kMaxQueries];
  for (size_t i = 0; i < a.num_queries; ++i) {
    if (a.begin[i] >= a.end[i]) continue;
    sum[i] = Softmax(a.scores + i * kSpan, a.begin[i], a.end[i], a.scale, a.softcap, &max[i]);
  }
  size_t i = 0;
  for (; i + 4 <= a.num_queries; i += 4) WeighValues<E, 4>(a, i);
  switch (a.num_queries - i) {
    case 1:
      WeighValues<E, 1>(a, i);
      break;
    case 2:
      WeighValues<E, 2>(a, i);
      break;
    case 3:
      WeighValues<E, 3>(a, i);
      break;
  }
  for (i = 0; i < a.num_queries; ++i) {
    if (a.begin[i] < a.end[i]) Merge(a, i, max[i], sum[i]);
  }
}
