// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "services/worker/engine/types/request.h"
#include "tests/testing/scripted_constraint.h"

namespace continuo {

// Returns the demands of the request's scripted constraint after `ids`, if it has one and that
// restricts. All sequences of a request have the same script.
inline std::optional<Scripted> ConstraintAfter(const engine::Request& request,
                                               std::span<const int32_t> ids) {
  if (request.constraints.empty()) return std::nullopt;
  Scripted here = ConstraintOf(request).script()(ids);
  if (!here.restricts) return std::nullopt;
  return here;
}

// Returns why `answer` is complete, or kNone, by the comments of inference.proto and
// TokenConstraint.
inline engine::FinishReason EndOf(const engine::Request& request,
                                  const std::vector<int32_t>& answer) {
  const auto n = static_cast<int>(answer.size());
  if (n > 0 && std::ranges::binary_search(request.stop_ids, answer.back())) {
    const bool is_constrained =
        ConstraintAfter(request, std::span(answer).first(answer.size() - 1)).has_value();
    if (n > request.min_tokens || is_constrained) return engine::FinishReason::kStop;
  }
  const std::optional<Scripted> here = ConstraintAfter(request, answer);
  if (here && here->must_end) return engine::FinishReason::kStop;
  return n > 0 && n >= request.max_tokens ? engine::FinishReason::kLength
                                          : engine::FinishReason::kNone;
}

// Returns the tokens that may follow `answer`, by the same comments, slowly and plainly, as a mask
// with bit id % 32 of word id / 32. It is empty where all may.
inline std::vector<uint32_t> NextTokenMask(const engine::Request& request,
                                           const std::vector<int32_t>& answer, int vocab_size) {
  const bool bars_stops = static_cast<int>(answer.size()) < request.min_tokens;
  const auto is_stop = [&](int32_t id) {
    return std::ranges::find(request.stop_ids, id) != request.stop_ids.end();
  };
  std::set<int32_t> allowed;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!request.allowed_mask.empty() && (request.allowed_mask[id / 32] >> (id % 32) & 1) == 0) {
      continue;
    }
    if (bars_stops && is_stop(id)) continue;
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
  if (const std::optional<Scripted> here = ConstraintAfter(request, answer)) {
    std::set<int32_t> may, both;
    for (int32_t id = 0; id < vocab_size; ++id) {
      if (!is_stop(id) && here->allows(id)) may.insert(id);
    }
    if (here->can_end && (may.empty() || !bars_stops)) {
      for (const int32_t id : request.stop_ids) {
        if (id < vocab_size) may.insert(id);
      }
    }
    std::ranges::set_intersection(may, left, std::inserter(both, both.end()));
    left = both.empty() ? may : both;
  }
  if (left.size() == static_cast<size_t>(vocab_size)) return {};
  std::vector<uint32_t> mask(static_cast<size_t>(vocab_size + 31) / 32, 0);
  for (const int32_t id : left) mask[id / 32] |= uint32_t{1} << (id % 32);
  return mask;
}

}  // namespace continuo
