// SPDX-License-Identifier: Apache-2.0
// Attention of up to kDecodeQueries queries that see the same positions: those of one row that
// share a KV head, as in decoding. Keys and values are read once and packed nowhere. Included by
// attention-inl.h.

constexpr size_t kDecodeQueries = 4;

// acc += the keys of one panel from element d on · q, whose words are at `words`, query by query in
// turn. kRun: the panel and the words are whole, and the panel is a run of rows at `keys`. `next`
// is memory to prefetch into the L1 cache.
template <class A, size_t kQ, bool kRun>
INLINE void ScoreWords(const KvChunkArgs& a, Vec* acc, const char* words, size_t j, size_t d,
                       size_t begin, size_t end, const char* keys, const char* next) {
  using E = typename A::Elements;
  Vec v[kLanes];
  if constexpr (kRun) {
    const size_t row_bytes = a.head_dim * sizeof(typename E::T);
    UNROLL for (size_t i = 0; i < kLoadLines<E>; ++i) __builtin_prefetch(next + 64 * i);
    keys += d * sizeof(typename E::T);
    // Keeps the compiler from computing all rows' addresses in advance: they would not fit.
    asm("" : "+r"(keys));
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

// scores = keys · q, two panels in turn, so that neither waits for the other's sums.
template <class A, size_t kQ>
static void ScoreDecode(const KvChunkArgs& a, size_t begin, size_t end, Prefetcher& prefetcher) {
  using E = typename A::Elements;
  constexpr size_t kElements = E::kWordElements * kLanes;
  constexpr size_t kStepBytes = kLanes * kQ * A::kWordBytes;
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
    for (size_t d = 0; d < a.head_dim; d += kElements, part += kStepBytes) {
      prefetcher.template Next<kLoadLines<E>>();
      ScoreWords<A, kQ, true>(a, first, part, j, d, begin, end, keys, next);
      prefetcher.template Next<kLoadLines<E>>();
      ScoreWords<A, kQ, true>(a, second, part, j, d, begin, end, more, next_more);
      next += kLoadLines<E> * 64;
      next_more += kLoadLines<E> * 64;
    }
    UNROLL for (size_t m = 0; m < kQ; ++m) {
      Store(a.scores + m * kKvChunk + j, first[m]);
      Store(a.scores + m * kKvChunk + j + kLanes, second[m]);
    }
  }
  for (; j < end; j += kLanes) {
    Vec acc[kQ];
    UNROLL for (size_t i = 0; i < kQ; ++i) acc[i] = Zero();
    const char* part = words;
    for (size_t d = 0; d < a.head_dim; d += kElements, part += kStepBytes) {
      prefetcher.template Next<kLoadLines<E>>();
      ScoreWords<A, kQ, false>(a, acc, part, j, d, begin, end, nullptr, nullptr);
    }
    UNROLL for (size_t m = 0; m < kQ; ++m) Store(a.scores + m * kKvChunk + j, acc[m]);
  }
}

// acc += the weights of one step, kKvChunk apart from query to query, · its values.
template <class A, size_t kQ, size_t kD>
INLINE void AddStep(Vec (&acc)[kQ][kD], const float* weights, const Vec* values) {
  UNROLL for (size_t m = 0; m < kQ; ++m) {
    UNROLL for (size_t i = 0; i < kD; ++i) {
      acc[m][i] = A::AddStep(acc[m][i], weights + m * kKvChunk, values[i]);
    }
  }
}

// chunk_out of kD panels from element d on.
template <class A, size_t kQ, size_t kD>
INLINE void WeighDecode(const KvChunkArgs& a, size_t d, size_t begin, size_t end,
                        Prefetcher& prefetcher) {
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
      size_t stop = (j + kKvRun) / kKvRun * kKvRun;
      stop = stop < whole ? stop : whole;
      const char* row = static_cast<const char*>(a.values[j]) + d * sizeof(typename A::T);
      for (; j < stop; j += kStep, row += kStep * row_bytes) {
        prefetcher.template Next<kLines>();
        Vec values[kD];
        A::template LoadWholeValues<kD>(row, row + row_bytes, values);
        AddStep<A>(acc, a.scores + j / kStep, values);
      }
    }
  }
  for (; j < end; j += kStep) {
    prefetcher.NextSome(kLines);
    const void* const odd = kStep > 1 && j + 1 < end ? a.values[j + 1] : nullptr;
    Vec values[kD];
    A::template LoadValues<kD>(a, j < begin ? nullptr : a.values[j], odd, d, values);
    AddStep<A>(acc, a.scores + j / kStep, values);
  }
  UNROLL for (size_t m = 0; m < kQ; ++m) {
    UNROLL for (size_t i = 0; i < kD; ++i) {
      Store(a.chunk_out + m * a.stride + d + i * kLanes, acc[m][i]);
    }
  }
}

template <class A, size_t kQ>
static void WeighDecodeValues(const KvChunkArgs& a, size_t begin, size_t end,
                              Prefetcher& prefetcher) {
  constexpr size_t kMost = kDecodeAccumulators >= 8 * kQ   ? 8
                           : kDecodeAccumulators >= 4 * kQ ? 4
                                                           : 2;
  size_t d = 0;
  for (; d + kMost * kLanes <= a.stride; d += kMost * kLanes) {
    WeighDecode<A, kQ, kMost>(a, d, begin, end, prefetcher);
  }
  for (; d < a.stride; d += 2 * kLanes) WeighDecode<A, kQ, 2>(a, d, begin, end, prefetcher);
}
