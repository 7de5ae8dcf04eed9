// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "services/worker/engine/types/request.h"

namespace continuo {

// Which tokens may follow `answer`, by the comments of inference.proto, slowly and plainly: bit
// id % 32 of word id / 32. Empty where all may.
inline std::vector<uint32_t> NextTokenMask(const engine::Request& request,
                                           const std::vector<int32_t>& answer, int vocab_size) {
  const bool bars_stops = static_cast<int>(answer.size()) < request.min_tokens;
  std::set<int32_t> allowed;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!request.allowed_mask.empty() && (request.allowed_mask[id / 32] >> (id % 32) & 1) == 0) {
      continue;
    }
    if (bars_stops && std::ranges::find(request.stop_ids, id) != request.stop_ids.end()) continue;
    allowed.insert(id);
  }
  std::set<int32_t> left = allowed;
  for (const std::vector<int32_t>& ids : request.barred) {
    std::vector<int32_t> ahead = answer;
    ahead.push_back(ids.back());
    if (ahead.size() >= ids.size() && std::equal(ids.rbegin(), ids.rend(), ahead.rbegin())) {
      left.erase(ids.back());
    }
  }
  if (left.empty()) left = allowed;
  if (left.size() == static_cast<size_t>(vocab_size)) return {};
  std::vector<uint32_t> mask(static_cast<size_t>(vocab_size + 31) / 32, 0);
  for (const int32_t id : left) mask[id / 32] |= uint32_t{1} << (id % 32);
  return mask;
}

}  // namespace continuo
