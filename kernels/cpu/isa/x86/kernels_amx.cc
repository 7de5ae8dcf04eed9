// SPDX-License-Identifier: Apache-2.0
// Packed int8 and int4 by tdpbssd: the integer sums of a group for up to 16 rows and a panel are
// one tile. Compiled with AVX-512, -mamx-tile and -mamx-int8. Intel SDM volume 1, chapter 18, has
// the tiles.

#include <immintrin.h>

#include "kernels/cpu/isa/kernel_words.h"

namespace continuo::kernels::cpu {
namespace {

#include "kernels/cpu/isa/panel_matmul-inl.h"
#include "kernels/cpu/isa/x86/avx512_numbers-inl.h"

constexpr size_t kMaxRows = 16;   // of a tile
constexpr size_t kMaxBytes = 64;  // of a tile's row; an element is a byte
constexpr size_t kMinGroup = 16;  // elements; shorter groups are multiplied without tiles

// The fewest rows of a tile. Rows that need several tiles are divided evenly, so that each tile has
// at least 8.
constexpr size_t kMinRows = 8;

// Returns the fewest rows for which tiles are faster than vpdpbusd: the sums of a tile go through
// memory for each group.
INLINE size_t MinRowsOf(size_t group_size) {
  return group_size >= 64 ? kMinRows : group_size >= 32 ? 14 : 32;
}

// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

using Sums = int32_t[kMaxRows][kPanelColumns];

// The tiles: 0 the sums, 1 rows of x, 2 the weights. The operands in memory tell the compiler what
// the instructions read and write; x is written by no function here.
INLINE void LoadConfig(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
INLINE void ReleaseTiles() { asm volatile("tilerelease"); }

// sums = x rows · weights, over `size` elements, `row_bytes` at once. Returns the end of the
// weights.
INLINE const int8_t* MultiplyTiles(Sums& sums, const uint8_t* x, size_t x_stride,
                                   const int8_t* weights, size_t size, size_t row_bytes) {
  asm volatile("tilezero %%tmm0" : :);
  for (size_t k = 0; k < size; k += row_bytes, x += row_bytes) {
    asm volatile(
        "tileloadd (%0,%1,1), %%tmm1\n\t"
        "tileloadd (%2,%3,1), %%tmm2\n\t"
        "tdpbssd %%tmm2, %%tmm1, %%tmm0"
        :
        : "r"(x), "r"(x_stride), "r"(weights), "r"(size_t{64}),
          "m"(*reinterpret_cast<const int8_t(*)[kMaxBytes * kPanelColumns]>(weights)));
    weights += row_bytes * kPanelColumns;
  }
  asm volatile("tilestored %%tmm0, (%1,%2,1)" : "=m"(sums) : "r"(&sums), "r"(size_t{64}));
  return weights;
}

// Makes the integers of a group in a panel signed bytes, four elements of a column after those of
// the one before, and fills them up with zeros to `padded` elements. kTable: four bits stand for an
// integer of `table`.
template <int kBits, bool kTable, bool kMinimum>
INLINE void Unpack(const uint8_t* runs, size_t size, size_t padded, __m512i table, int8_t* out) {
  constexpr size_t kRun = kBits == 8 ? 4 : 8;
  const size_t end = padded * kPanelColumns;
  size_t at = 0;
  for (size_t k = 0; k < size; k += kRun, runs += 64) {
    const __m512i codes = _mm512_loadu_si512(runs);
    if (kBits == 8) {
      _mm512_storeu_si512(out + at, _mm512_xor_si512(codes, _mm512_set1_epi8(-128)));
      at += 64;
      continue;
    }
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i low = _mm512_and_si512(codes, mask);
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(codes, 4), mask);
    if (kTable) {
      low = _mm512_shuffle_epi8(table, low);
      high = _mm512_shuffle_epi8(table, high);
    } else if (!kMinimum) {
      low = _mm512_sub_epi8(low, _mm512_set1_epi8(8));
      high = _mm512_sub_epi8(high, _mm512_set1_epi8(8));
    }
    _mm512_storeu_si512(out + at, low);
    _mm512_storeu_si512(out + at + 64, high);
    at += 128;
  }
  for (; at < end; at += 64) _mm512_storeu_si512(out + at, _mm512_setzero_si512());
}

// A chunk of a panel: its integers, and of each group the numbers that they are multiplied by and
// those that are added.
template <size_t kChunk>
struct alignas(64) Unpacked {
  int8_t integers[(kChunk + kMaxBytes) * kPanelColumns];
  float scales[kChunk / kMinGroup][kPanelColumns];
  float minima[kChunk / kMinGroup][kPanelColumns];
};

template <size_t kChunk>
struct UnpackedArgs : TileArgs {
  Unpacked<kChunk>* unpacked;
  size_t row_bytes;  // elements that are multiplied at once
};

// The integers of a chunk, 16 KiB as bytes, stay in the L1 cache while all rows use them.
template <int kBits, bool kTable>
struct QuantTile : QuantLayout<kBits, kBits == 8 ? 1024 : 512> {
  using Layout = QuantLayout<kBits, kBits == 8 ? 1024 : 512>;
  using Layout::kChunk;
  using Layout::kRun;
  using Args = UnpackedArgs<kChunk>;
  static constexpr size_t kRows = kMaxRows, kPanels = 1, kSmallM = kMaxRows;

  // Computes all rows of a panel.
  static void Panel(const PanelBlock& b, size_t panel, size_t num_tiles, size_t row_bytes) {
    Unpacked<kChunk> unpacked;
    ForChunks<QuantTile>(b, panel, 1, [&](const TileArgs& chunk, size_t unit) {
      Args t = {chunk, &unpacked, row_bytes};
      if (b.groups->format.has_minimum) {
        UnpackChunk<true>(t);
      } else {
        UnpackChunk<false>(t);
      }
      Tiles<QuantTile, 1, kMinRows>(b, panel, unit, num_tiles, t);
    });
  }

  template <bool kMinimum>
  static void UnpackChunk(const Args& t) {
    const __m512i table = _mm512_xor_si512(
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(t.groups->table))),
        _mm512_set1_epi8(-128));
    Unpacked<kChunk>& to = *t.unpacked;
    int8_t* integers = to.integers;
    ForGroups<kRun>(t, [&](size_t group, size_t, size_t size, const uint8_t* unit, size_t in_unit,
                           const uint8_t* runs) {
      const size_t padded = (size + t.row_bytes - 1) / t.row_bytes * t.row_bytes;
      Unpack<kBits, kTable, kMinimum>(runs, size, padded, table, integers);
      integers += padded * kPanelColumns;
      float room[2 * kPanelColumns];
      const GroupNumbers numbers = NumbersOf<Words>(*t.groups, unit, in_unit, room);
      _mm512_storeu_ps(to.scales[group], _mm512_loadu_ps(numbers.scales));
      if (kMinimum) _mm512_storeu_ps(to.minima[group], _mm512_loadu_ps(numbers.minima));
    });
  }

  template <size_t kM, size_t kP>
  static void Tile(const Args& t) {
    if (t.groups->format.has_minimum) return AddGroups<kM, true>(t);
    AddGroups<kM, false>(t);
  }

  // The integers of a group are multiplied before the group before it is scaled: the processor does
  // not wait for sums that a tile has just stored.
  template <size_t kM, bool kMinimum>
  static void AddGroups(const Args& t) {
    alignas(64) Sums sums[2];
    __m512 acc[kM];
    UNROLL for (size_t i = 0; i < kM; ++i) {
      // -0 plus the first product is that product.
      acc[i] = t.first ? _mm512_set1_ps(-0.0f) : _mm512_loadu_ps(t.out + i * t.out_stride);
    }
    const Unpacked<kChunk>& from = *t.unpacked;
    const GroupFormat& format = t.groups->format;
    const size_t group_size = static_cast<size_t>(format.size);
    const size_t group_bytes = t.groups->unit_bytes * group_size / static_cast<size_t>(format.unit);
    const size_t num_groups = (t.k + group_size - 1) / group_size;
    const uint8_t* x = t.x;
    const int8_t* integers = from.integers;
    size_t left = t.k;
    const auto multiply = [&](size_t group) __attribute__((always_inline)) {
      const size_t size = left < group_size ? left : group_size;
      integers = MultiplyTiles(sums[group % 2], x, t.x_stride, integers, size, t.row_bytes);
      x += size;
      left -= size;
    };
    multiply(0);
    if (num_groups > 1) multiply(1);
    const float* x_scales = t.x_scales;
    const float* x_sums = t.x_scaled_sums;
    const uint8_t* w = t.w;
    for (size_t group = 0; group < num_groups; ++group, w += group_bytes) {
      for (size_t i = 0; i < group_bytes; i += 64) PrefetchL2(w + i, t.ahead);
      const Sums& sum = sums[group % 2];
      const __m512 scales = _mm512_load_ps(from.scales[group]);
      const __m512 minima = kMinimum ? _mm512_load_ps(from.minima[group]) : _mm512_setzero_ps();
      UNROLL for (size_t i = 0; i < kM; ++i) {
        const __m512 whole = _mm512_cvtepi32_ps(_mm512_load_si512(sum[i]));
        __m512 product = _mm512_mul_ps(_mm512_mul_ps(whole, scales), _mm512_set1_ps(x_scales[i]));
        if (kMinimum) {
          product = _mm512_add_ps(product, _mm512_mul_ps(minima, _mm512_set1_ps(x_sums[i])));
        }
        acc[i] = _mm512_add_ps(acc[i], product);
      }
      x_scales += t.group_stride;
      x_sums += t.group_stride;
      if (group + 2 < num_groups) multiply(group + 2);
    }
    UNROLL for (size_t i = 0; i < kM; ++i) _mm512_storeu_ps(t.out + i * t.out_stride, acc[i]);
  }
};

// Returns whether tiles can multiply a block, and are faster. Unpacked has room for groups of
// kMinGroup elements and more whose units fit in a chunk; groups longer than kMaxBytes are whole
// rows of tiles.
template <class T>
INLINE bool SuitsTiles(const PanelBlock& b) {
  const size_t size = static_cast<size_t>(b.groups->format.size);
  const size_t unit = static_cast<size_t>(b.groups->format.unit);
  if (size < kMinGroup || unit > T::kChunk || (size > kMaxBytes && size % kMaxBytes != 0)) {
    return false;
  }
  return b.k > 0 && b.num_rows >= MinRowsOf(size);
}

template <class T>
static void TilePanels(const PanelBlock& b, void (*without_tiles)(const PanelBlock&)) {
  if (!SuitsTiles<T>(b)) return without_tiles(b);
  const size_t num_tiles = (b.num_rows + kMaxRows - 1) / kMaxRows;
  // Tiles have `rows` rows or one less, and the last one has `rows`. A shorter tile also reads the
  // first row of the next one; its sums are not used.
  const size_t rows = (b.num_rows + num_tiles - 1) / num_tiles;
  const size_t size = static_cast<size_t>(b.groups->format.size);
  const size_t row_bytes = size < kMaxBytes ? size : kMaxBytes;
  TileConfig config = {};
  config.palette = 1;
  const auto set = [&](size_t tile, size_t num_rows, size_t bytes) {
    config.rows[tile] = static_cast<uint8_t>(num_rows);
    config.row_bytes[tile] = static_cast<uint16_t>(bytes);
  };
  set(0, rows, 4 * kPanelColumns);
  set(1, rows, row_bytes);
  set(2, row_bytes / 4, 4 * kPanelColumns);
  LoadConfig(config);
  for (size_t panel = 0; panel < b.num_panels; ++panel) T::Panel(b, panel, num_tiles, row_bytes);
  // Linux need not save the tiles when it switches threads.
  ReleaseTiles();
}

}  // namespace

void AmxInt8(const PanelBlock& block) { TilePanels<QuantTile<8, false>>(block, Avx512VnniInt8); }

void AmxInt4(const PanelBlock& block) {
  if (block.groups->format.codes == GroupCodes::kIntegers) {
    return TilePanels<QuantTile<4, false>>(block, Avx512VnniInt4);
  }
  TilePanels<QuantTile<4, true>>(block, Avx512VnniInt4);
}

}  // namespace continuo::kernels::cpu
