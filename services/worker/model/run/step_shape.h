// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// The shapes of steps that only decode on an asynchronous device. They are few, so that each can be
// captured as a graph: rows are padded with sequences of one token in a spare block, block tables
// with columns that are never read.
namespace continuo::model {

// A step with more rows or block-table entries takes longer than its launches, so it needs no
// graph.
inline constexpr int kMostPaddedRows = 512;
inline constexpr int64_t kMostPaddedEntries = int64_t{1} << 22;
// Most widths of block tables. With 23 numbers of rows that makes at most 115 shapes.
inline constexpr int kMostWidths = 5;

// Rounds rows ≥ 1 up to one of 1, 2, 4, 8, 16, 24 … 64, 80 … 128, 160 … 256, 320 … 512. More rows
// stay as they are.
constexpr int PaddedRows(int rows) {
  if (rows > kMostPaddedRows) return rows;
  if (rows <= 4) return rows == 3 ? 4 : rows;
  int step = 8;
  for (int most = 64; rows > most; most *= 2) step *= 2;
  return (rows + step - 1) / step * step;
}

// Rounds the columns of a block table up to one of 64, 256, 1024 …, at most most_blocks, the number
// of the longest context. The factor is larger where there would be more than kMostWidths widths.
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

// Returns all results of PaddedRows for up to `rows` rows, ascending, each at most `most`.
inline std::vector<int> AllPaddedRows(int rows, int most) {
  std::vector<int> all;
  for (int n = 1; n <= std::min(rows, kMostPaddedRows); ++n) {
    const int padded = std::min(PaddedRows(n), most);
    if (all.empty() || all.back() != padded) all.push_back(padded);
  }
  return all;
}

// Returns all results of PaddedBlocks, ascending.
inline std::vector<int> AllPaddedBlocks(int most_blocks) {
  std::vector<int> all;
  for (int n = 1; n <= most_blocks; n = all.back() + 1) all.push_back(PaddedBlocks(n, most_blocks));
  return all;
}

}  // namespace continuo::model
