// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/sequence.h"

#include <algorithm>

namespace continuo::engine {

FinishReason WhyFinished(const Request& request, const std::vector<int32_t>& answer) {
  const auto n = static_cast<int64_t>(answer.size());
  if (n > 0 && n > request.min_tokens &&
      std::ranges::binary_search(request.stop_ids, answer.back())) {
    return FinishReason::kStop;
  }
  return n > 0 && n >= request.max_tokens ? FinishReason::kLength : FinishReason::kNone;
}

void BuildSeen(Sequence& s) {
  if (s.seen_is_built) return;
  s.seen_is_built = true;
  s.seen.clear();
  s.seen.reserve(s.answer.capacity());
  // Only the repetition penalty looks at the prompt.
  if (s.request->request.sampling.repetition_penalty != 1.0f) {
    std::vector<int32_t> ids = s.request->request.prompt;
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    s.seen.reserve(ids.size() + s.answer.capacity());
    for (const int32_t id : ids) s.seen.push_back({.token_id = id});
  }
  for (const int32_t id : s.answer) model::AddSeen(s.seen, id);
}

}  // namespace continuo::engine
