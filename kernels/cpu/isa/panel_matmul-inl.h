// SPDX-License-Identifier: Apache-2.0
// The loop over a block of packed panels. Included inside an instruction set's unnamed namespace,
// which then instantiates Panels<T> for its tiles. A set that prepares each chunk calls ForChunks
// and Tiles itself (kernels_amx.cc).
//
//   T::kRows, T::kPanels          the largest tile, rows of x × panels
//   T::kSmallM, T::kSmallMPanels  up to kSmallM rows, tiles are kSmallMPanels wide
//   T::kChunk                     elements of k that a tile takes at most before the next rows have
//                                 a turn
//   T::UnitOf(block)              what a chunk is a multiple of
//   T::Tile<rows, panels>(args)
//
// A chunk of a few panels stays in the L1 cache while all rows use it; meanwhile the next one is
// prefetched into the L2 cache. No include guard: not a header.

struct PanelUnit {
  size_t elements;
  size_t bytes;   // in a panel
  size_t groups;  // whose scales rows of x have
};

// Tiles of int8 and int4 share this layout: a unit is the scales of its groups, then runs of
// elements; a chunk takes kInt8Chunk elements of int8, and as many bytes of int4.
template <int kBits, size_t kInt8Chunk>
struct QuantLayout {
  static constexpr size_t kElementBytes = 1;
  static constexpr size_t kRun = kBits == 8 ? 4 : 8;  // elements in four bytes
  static constexpr size_t kChunk = kBits == 8 ? kInt8Chunk : 2 * kInt8Chunk;

  INLINE static PanelUnit UnitOf(const PanelBlock& b) {
    const GroupFormat& f = b.groups->format;
    return {static_cast<size_t>(f.unit), b.groups->unit_bytes,
            static_cast<size_t>(f.unit / f.size)};
  }
};

// The elements of a group in one panel are multiplied by the scales, and the minima are added:
// kPanelColumns each. Minima are null where there are none.
struct GroupNumbers {
  const float* scales;
  const float* minima;
};

// Reads the numbers of group `group` of a unit, if need be into `room` [2 * kPanelColumns]. Words:
//
//   Widen(out, halves)          kPanelColumns f16 as f32
//   Multiply(out, bytes, halves)  the same times as many signed bytes; exact
template <class Words>
INLINE GroupNumbers NumbersOf(const PanelGroups& groups, const uint8_t* unit, size_t group,
                              float* room) {
  constexpr size_t kHalves = 2 * kPanelColumns;  // bytes
  const bool has_minimum = groups.format.has_minimum;
  const size_t count = has_minimum ? 2 : 1;
  switch (groups.format.scales) {
    case GroupScales::kF32: {
      const float* scales = reinterpret_cast<const float*>(unit) + group * count * kPanelColumns;
      return {scales, has_minimum ? scales + kPanelColumns : nullptr};
    }
    case GroupScales::kF16: {
      const uint8_t* at = unit + group * count * kHalves;
      Words::Widen(room, at);
      if (has_minimum) Words::Widen(room + kPanelColumns, at + kHalves);
      break;
    }
    case GroupScales::kShared: {
      const uint8_t* at = unit + count * (kHalves + group * kPanelColumns);
      Words::Multiply(room, at, unit);
      if (has_minimum) Words::Multiply(room + kPanelColumns, at + kPanelColumns, unit + kHalves);
      break;
    }
  }
  return {room, has_minimum ? room + kPanelColumns : nullptr};
}

// Calls body(group among those of x, its first element, elements, unit, group of the unit, runs in
// the first panel) for each group of a tile.
template <size_t kRun, class Args, class Body>
INLINE void ForGroups(const Args& t, const Body& body) {
  const PanelGroups& groups = *t.groups;
  const size_t unit_size = static_cast<size_t>(groups.format.unit);
  const size_t group_size = static_cast<size_t>(groups.format.size);
  const uint8_t* unit = t.w;
  size_t group = 0;
  for (size_t k = 0; k < t.k; k += unit_size, unit += groups.unit_bytes) {
    const size_t end = t.k - k < unit_size ? t.k : k + unit_size;
    const uint8_t* runs = unit + groups.header_bytes;
    size_t in_unit = 0;
    for (size_t at = k; at < end; at += group_size, ++group, ++in_unit) {
      const size_t size = end - at < group_size ? end - at : group_size;
      body(group, at, size, unit, in_unit, runs);
      runs += (size + kRun - 1) / kRun * 64;
    }
  }
}

struct TileArgs {
  float* out;
  size_t out_stride;
  const uint8_t* x;
  size_t x_stride;
  const float* x_scales;
  const int32_t* x_sums;
  const float* x_scaled_sums;
  size_t group_stride;
  const uint8_t* w;
  size_t panel_stride;
  size_t k;
  const PanelGroups* groups;
  bool first;    // out is written, not added to
  size_t ahead;  // bytes from a panel's chunk to the one that is read next
};

// Prefetches the line `ahead` bytes after p, which need not exist, into the L2 cache.
INLINE void PrefetchL2(const uint8_t* p, size_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + ahead), 0, 2);
}

// Rows of x, four to a pointer: what a machine instruction can address by itself.
template <size_t kM>
struct XRows {
  const uint8_t* base[(kM + 3) / 4];
  size_t stride;

  INLINE XRows(const uint8_t* x, size_t x_stride) : stride(x_stride) {
    UNROLL for (size_t i = 0; i < kM; i += 4) base[i / 4] = x + i * x_stride;
  }
  INLINE const uint8_t* Row(size_t i) const { return base[i / 4] + i % 4 * stride; }
  INLINE void Advance(size_t bytes) {
    UNROLL for (size_t i = 0; i < kM; i += 4) base[i / 4] += bytes;
  }
};

template <class T, size_t kP, size_t kM = 1, class Args>
static void TileOfRows(const Args& t, size_t rows) {
  constexpr size_t kMost = kP > T::kPanels ? T::kSmallM : T::kRows;
  if (rows == kM) return T::template Tile<kM, kP>(t);
  if constexpr (kM < kMost) {
    TileOfRows<T, kP, kM + 1>(t, rows);
  } else {
    __builtin_trap();  // T has no tile of so many rows
  }
}

// Calls body(tile, unit) for each chunk of `num_panels` neighbouring panels, with all of the tile
// that is the same for all rows, and the first unit. Chunks are about equally long, so that each
// prefetches all of the next one.
template <class T, class Body>
INLINE void ForChunks(const PanelBlock& b, size_t panel, size_t num_panels, const Body& body) {
  const uint8_t* const w = b.w + panel * b.panel_stride;
  const uint8_t* const next =
      panel + num_panels < b.num_panels ? w + num_panels * b.panel_stride : b.next;
  const PanelUnit size = T::UnitOf(b);
  const size_t num_units = (b.k + size.elements - 1) / size.elements;
  const size_t max_units = T::kChunk > size.elements ? T::kChunk / size.elements : 1;
  const size_t num_chunks = (num_units + max_units - 1) / max_units;
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    const size_t unit = num_units * chunk / num_chunks;
    const size_t end_unit = num_units * (chunk + 1) / num_chunks;
    const size_t k = unit * size.elements, end_k = end_unit * size.elements;
    TileArgs t = {};
    t.out_stride = b.out_stride;
    t.x_stride = b.x_stride;
    t.group_stride = b.group_stride;
    t.w = w + unit * size.bytes;
    t.panel_stride = b.panel_stride;
    t.k = (end_k < b.k ? end_k : b.k) - k;
    t.groups = b.groups;
    t.first = chunk == 0;
    t.ahead = (end_unit - unit) * size.bytes;
    if (chunk + 1 == num_chunks) {
      t.ahead = next == nullptr
                    ? 0
                    : reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(t.w);
    }
    body(t, unit);
  }
}

// Points a tile of the chunk that begins with unit `unit` to the rows from `row` on.
template <class T>
INLINE void SetRows(const PanelBlock& b, size_t panel, size_t unit, size_t row, TileArgs& t) {
  const PanelUnit size = T::UnitOf(b);
  t.out = b.out + row * b.out_stride + panel * kPanelColumns;
  t.x = b.x + row * b.x_stride + unit * size.elements * T::kElementBytes;
  if (size.groups > 0) {
    const size_t number = unit * size.groups * b.group_stride + row;
    t.x_scales = b.x_scales + number;
    t.x_sums = b.x_sums + number;
    t.x_scaled_sums = b.x_scaled_sums + number;
  }
}

// Computes a chunk of kP panels for all rows, in `num_tiles` tiles of about equally many rows, none
// with fewer than kLeast; the last one is one of the larger ones.
template <class T, size_t kP, size_t kLeast = 1, class Args>
INLINE void Tiles(const PanelBlock& b, size_t panel, size_t unit, size_t num_tiles, Args& t) {
  for (size_t tile = 0; tile < num_tiles; ++tile) {
    const size_t row = b.num_rows * tile / num_tiles;
    const size_t end = b.num_rows * (tile + 1) / num_tiles;
    SetRows<T>(b, panel, unit, row, t);
    TileOfRows<T, kP, kLeast>(t, end - row);
  }
}

// kP neighbouring panels, all rows.
template <class T, size_t kP>
static void PanelGroup(const PanelBlock& b, size_t panel, size_t num_tiles) {
  ForChunks<T>(b, panel, kP,
               [&](TileArgs& t, size_t unit) { Tiles<T, kP>(b, panel, unit, num_tiles, t); });
}

template <class T>
static void Panels(const PanelBlock& b) {
  if (b.k == 0) {
    for (size_t i = 0; i < b.num_rows; ++i) {
      memset(b.out + i * b.out_stride, 0, b.num_panels * kPanelColumns * sizeof(float));
    }
    return;
  }
  size_t panel = 0;
  if constexpr (T::kSmallMPanels > T::kPanels) {
    if (b.num_rows <= T::kSmallM) {
      for (; panel + T::kSmallMPanels <= b.num_panels; panel += T::kSmallMPanels) {
        PanelGroup<T, T::kSmallMPanels>(b, panel, 1);
      }
    }
  }
  const size_t num_tiles = (b.num_rows + T::kRows - 1) / T::kRows;
  for (; panel + T::kPanels <= b.num_panels; panel += T::kPanels) {
    PanelGroup<T, T::kPanels>(b, panel, num_tiles);
  }
  for (; panel < b.num_panels; ++panel) PanelGroup<T, 1>(b, panel, num_tiles);
}

// Tiles of int4 for codes that are integers, and for others.
template <template <int, bool> class Tile>
static void Int4Panels(const PanelBlock& b) {
  if (b.groups->format.codes == GroupCodes::kIntegers) return Panels<Tile<4, false>>(b);
  Panels<Tile<4, true>>(b);
}
