// SPDX-License-Identifier: Apache-2.0
// The loop over a block of packed panels. Included inside an instruction set's unnamed namespace,
// which then instantiates Panels<T> for its tiles:
//
//   T::kRows, T::kPanels          the largest tile, rows of x × panels
//   T::kSmallM, T::kSmallMPanels  up to kSmallM rows, tiles are kSmallMPanels wide
//   T::kChunk                     elements of k that a tile takes at most before the next rows have
//                                 a turn
//   T::kUnit, T::kUnitBytes       that a chunk is a multiple of; their bytes in a panel
//   T::Tile<rows, panels>(args)
//
// A chunk of a few panels stays in the L1 cache while all rows use it; meanwhile the next one is
// prefetched into the L2 cache. No include guard: not a header.

// The layout that tiles of int8 and int4 share: a group is its scales, then runs of elements; a
// chunk takes kInt8Chunk elements of int8, and as many bytes of int4.
template <int kBits, size_t kInt8Chunk>
struct QuantLayout {
  static constexpr size_t kElementBytes = 1;
  static constexpr size_t kGroup = kBits == 8 ? kInt8Group : kInt4Group;
  static constexpr size_t kRun = kBits == 8 ? 4 : 8;  // elements in four bytes
  static constexpr size_t kGroupBytes = (kGroup / kRun + 1) * 64;
  static constexpr size_t kChunk = kBits == 8 ? kInt8Chunk : 2 * kInt8Chunk;
  static constexpr size_t kUnit = kGroup, kUnitBytes = kGroupBytes;
};

struct TileArgs {
  float* out;
  size_t out_stride;
  const uint8_t* x;
  size_t x_stride;
  const float* x_scales;
  const int32_t* x_sums;
  size_t group_stride;
  const uint8_t* w;
  size_t panel_stride;
  size_t k;
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

template <class T, size_t kP, size_t kM = 1>
static void TileOfRows(const TileArgs& t, size_t rows) {
  constexpr size_t kMost = kP > T::kPanels ? T::kSmallM : T::kRows;
  if (rows == kM) return T::template Tile<kM, kP>(t);
  if constexpr (kM < kMost) TileOfRows<T, kP, kM + 1>(t, rows);
}

// kP neighbouring panels, all rows. Chunks are about equally long, so that each prefetches all of
// the next one.
template <class T, size_t kP>
static void PanelGroup(const PanelBlock& b, size_t panel, size_t num_tiles) {
  const uint8_t* const w = b.w + panel * b.panel_stride;
  const uint8_t* const next = panel + kP < b.num_panels ? w + kP * b.panel_stride : b.next;
  const size_t num_units = (b.k + T::kUnit - 1) / T::kUnit;
  const size_t max_units = T::kChunk / T::kUnit;
  const size_t num_chunks = (num_units + max_units - 1) / max_units;
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    const size_t unit = num_units * chunk / num_chunks;
    const size_t end_unit = num_units * (chunk + 1) / num_chunks;
    const size_t k = unit * T::kUnit, end_k = end_unit * T::kUnit;
    TileArgs t;
    t.out_stride = b.out_stride;
    t.x_stride = b.x_stride;
    t.group_stride = b.group_stride;
    t.w = w + unit * T::kUnitBytes;
    t.panel_stride = b.panel_stride;
    t.k = (end_k < b.k ? end_k : b.k) - k;
    t.first = chunk == 0;
    t.ahead = (end_unit - unit) * T::kUnitBytes;
    if (chunk + 1 == num_chunks) {
      t.ahead = next == nullptr
                    ? 0
                    : reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(t.w);
    }
    for (size_t tile = 0; tile < num_tiles; ++tile) {
      const size_t row = b.num_rows * tile / num_tiles;
      const size_t end = b.num_rows * (tile + 1) / num_tiles;
      t.out = b.out + row * b.out_stride + panel * kPanelColumns;
      t.x = b.x + row * b.x_stride + k * T::kElementBytes;
      if (T::kGroup > 0) {
        t.x_scales = b.x_scales + row * b.group_stride + unit;
        t.x_sums = b.x_sums + row * b.group_stride + unit;
      }
      TileOfRows<T, kP>(t, end - row);
    }
  }
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
