// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// Steps that decode have few shapes on a device that works apart, so that each can be prepared once
// (Backend::Repeat): rows are filled up with sequences of one token in a spare block, block tables
// with columns that nobody reads.
namespace continuo::model {

// Beyond so many rows, or entries of the block table, a step is long enough for its launches.
inline constexpr int kMostPaddedRows = 512;
inline constexpr int64_t kMostPaddedEntries = int64_t{1} << 22;
// Widths of block tables at most, so that no more than 115 shapes come of 23 numbers of rows.
inline constexpr int kMostWidths = 5;

// The next of 1, 2, 4, 8, 16, 24 … 64, 80 … 128, 160 … 256, 320 … 512; rows ≥ 1 beyond as they are.
constexpr int PaddedRows(int rows) {
  if (rows > kMostPaddedRows) return rows;
  if (rows <= 4) return rows == 3 ? 4 : rows;
  int step = 8;
  for (int most = 64; rows > most; most *= 2) step *= 2;
  return (rows + step - 1) / step * step;
}

// Columns of a block table: the next of 64, 256, 1024 …, with a larger factor where that would be
// more than kMostWidths up to what the longest context has, most_blocks, which ends them.
constexpr int PaddedBlocks(int blocks, int most_blocks) {
  constexpr int64_t kFirst = 64;
  int64_t factor = 4;
  const auto reaches = [&] {
    int64_t last = kFirst;
    for (int i = 1; i < kMostWidths; ++i) last *= factor;
    return last >= most_blocks;
  };
  while (!reaches()) factor *= 2;
  int64_t padded = kFirst;
  while (padded < blocks) padded *= factor;
  return static_cast<int>(std::max<int64_t>(blocks, std::min<int64_t>(padded, most_blocks)));
}

constexpr bool IsPadded(int rows, int columns) {
  return rows <= kMostPaddedRows && int64_t{rows} * columns <= kMostPaddedEntries;
}

// All that PaddedRows gives for up to `rows`, ascending; at most `most`.
inline std::vector<int> AllPaddedRows(int rows, int most) {
  std::vector<int> all;
  for (int n = 1; n <= std::min(rows, kMostPaddedRows); ++n) {
    const int padded = std::min(PaddedRows(n), most);
    if (all.empty() || all.back() != padded) all.push_back(padded);
  }
  return all;
}

// The same of PaddedBlocks.
inline std::vector<int> AllPaddedBlocks(int most_blocks) {
  std::vector<int> all;
  for (int n = 1; n <= most_blocks; n = all.back() + 1) all.push_back(PaddedBlocks(n, most_blocks));
  return all;
}

}  // namespace continuo::model
