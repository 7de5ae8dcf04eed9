// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace continuo {

// The texts in their order, each once.
inline std::vector<std::string> SortedDistinct(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  const auto repeated = std::ranges::unique(texts);
  texts.erase(repeated.begin(), repeated.end());
  return texts;
}

}  // namespace continuo
