// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::text {

// A regular expression as a tree.
struct PatternNode {
  enum class Kind { kEmpty, kClass, kConcat, kAlternatives, kRepeat, kGroup, kBegin, kEnd };
  Kind kind = Kind::kEmpty;
  std::vector<PatternNode> children;
  std::bitset<256> bytes;  // kClass
  int min = 0, max = -1;   // kRepeat; -1: any number
  bool greedy = true;      // kRepeat
  std::string name;        // kGroup; empty: not captured

  static PatternNode Literal(std::string_view text);
};

// Reads the part of Python's syntax that Pattern has. InvalidArgument names what it has not.
absl::StatusOr<PatternNode> ParsePattern(std::string_view regex);

}  // namespace continuo::text
