// SPDX-License-Identifier: Apache-2.0
// The loops of attention over one KV chunk, for an arithmetic A: two products of matrices with a
// softmax between them. Keys and values are packed into panels first: scores have lanes over
// positions, sums of values have lanes over elements of the head, so every output is one
// accumulator over its k in ascending order. Included after vector_math-inl.h. A defines
//
//   Tile                 multiplies, see FloatTile
//   kStep                elements of k that one word of x holds
//   kScaled              keys and values are multiplied by their position's scale
//   PackKeys, PackValues the panels of a chunk; PackStep: of one position alone
//   AddWord, AddStep     what Tile does for one vector; LoadValues: kD panels of a step;
//   LoadWholeValues      the same of rows that are there and long enough
//   StoreWeights         kLanes weights from position j of a row of scores on, as Tile's x

#include "kernels/cpu/isa/attention_prefill-inl.h"

// Turns one query's scores, in the vectors that hold positions [begin, end), into e^(score -
// maximum), zero where not seen, as A multiplies them. Returns their sums in lanes.
template <class A>
INLINE Vec Softmax(const KvChunkArgs& a, size_t query, float* maximum) {
  float* const scores = a.scores + query * kKvChunk;
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

// chunk_out of queries [first_query, end_query) += their weights · values, over positions
// [begin, end) that all of them see, ascending. `first`: written instead.
template <class A>
static void AddValues(const KvChunkArgs& a, size_t first_query, size_t end_query, size_t begin,
                      size_t end, bool first) {
  ChunkTile t;
  t.out = a.chunk_out + first_query * a.stride;
  t.out_stride = a.stride;
  t.x_stride = kKvChunk * sizeof(float);
  const char* const x = reinterpret_cast<const char*>(a.scores + first_query * kKvChunk);
  const size_t num_panels = (a.head_dim + kLanes - 1) / kLanes;
  // The other positions of this one's step are not seen. They may hold NaN, so zeros replace them.
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

// The same for the part of [from, to), whole steps, that each query sees: positions that all see
// are done together, the rest by halves of the queries.
template <class A>
static void WeighValues(const KvChunkArgs& a, size_t first_query, size_t end_query, int from,
                        int to, bool first) {
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

// Merges a chunk's results: with m = max(m1, m2), sum = s1·e^(m1-m) + s2·e^(m2-m), and out
// likewise. Before the first chunk the maximum is -infinity, the sum 0 and the vector zeros.
INLINE void Merge(const KvChunkArgs& a, size_t first_query, size_t n, const float* max,
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
    const float* chunk_out = a.chunk_out + query * a.stride;
    for (size_t d = 0; d < a.head_dim; d += kLanes) {
      Store(out + d, MulAdd(Load(chunk_out + d), new_factor, Mul(Load(out + d), old_factor)));
    }
  }
}

static void MergeChunk(const KvChunkArgs& a, const float* max, const float* sum) {
  for (size_t i = 0; i < a.num_queries; i += kLanes) {
    const size_t left = a.num_queries - i;
    Merge(a, i, left < kLanes ? left : kLanes, max + i, sum + i);
  }
}

#include "kernels/cpu/isa/attention_decode-inl.h"

template <class A>
static void AttendChunk(const KvChunkArgs& a) {
  // Ranges do not decrease from query to query, so the union is from the first to the last.
  const size_t last = a.num_queries - 1;
  const size_t begin = a.begin[0], end = a.end[last];
  if (begin >= end) return;
  Prefetcher prefetcher(a);
  const bool is_decode =
      a.num_queries <= kDecodeQueries && a.begin[0] == a.begin[last] && a.end[0] == a.end[last];
  if (is_decode) {
    switch (a.num_queries) {
      case 1:
        ScoreDecode<A, 1>(a, begin, end, prefetcher);
        break;
      case 2:
        ScoreDecode<A, 2>(a, begin, end, prefetcher);
        break;
      case 3:
        ScoreDecode<A, 3>(a, begin, end, prefetcher);
        break;
      case 4:
        ScoreDecode<A, 4>(a, begin, end, prefetcher);
        break;
    }
  } else {
    A::PackKeys(a, begin, end, prefetcher);
    ChunkTile t;
    const size_t panel = begin / kLanes;
    t.panel_stride = KeyPanelBytes(a, A::kStep);
    t.out = a.scores + panel * kLanes;
    t.out_stride = kKvChunk;
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

  if (is_decode) {
    switch (a.num_queries) {
      case 1:
        WeighDecodeValues<A, 1>(a, begin, end, prefetcher);
        break;
      case 2:
        WeighDecodeValues<A, 2>(a, begin, end, prefetcher);
        break;
      case 3:
        WeighDecodeValues<A, 3>(a, begin, end, prefetcher);
        break;
      case 4:
        WeighDecodeValues<A, 4>(a, begin, end, prefetcher);
        break;
    }
  } else {
    A::PackValues(a, begin, end, prefetcher);
    // Where all begin together and none is done before the first step ends, that step writes.
    const bool first = a.begin[0] == a.begin[last] && begin % A::kStep == 0 &&
                       a.end[0] >= static_cast<int>(begin + A::kStep);
    if (!first) memset(a.chunk_out, 0, a.num_queries * a.stride * sizeof(float));
    WeighValues<A>(a, 0, a.num_queries, 0, kKvChunk, first);
  }
  if (a.write_partial) {
    memcpy(a.max, max, a.num_queries * sizeof(float));
    memcpy(a.sum, sum, a.num_queries * sizeof(float));
  } else {
    MergeChunk(a, max, sum);
  }
}
