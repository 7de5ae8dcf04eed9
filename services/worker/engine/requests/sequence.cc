// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/sequence.h"

#include <algorithm>

namespace continuo::engine {

bool EndsByStopId(const Sequence& s) {
  const Request& r = s.request->request;
  const auto n = static_cast<int64_t>(s.answer.size());
  return n > 0 && std::ranges::binary_search(r.stop_ids, s.answer.back()) &&
         (n > r.min_tokens || (s.constraint != nullptr && s.constraint->Restricts()));
}

FinishReason WhyFinished(const Sequence& s) {
  if (EndsByStopId(s)) return FinishReason::kStop;
  if (s.constraint != nullptr && s.constraint->Restricts() && s.constraint->MustEnd()) {
    return FinishReason::kStop;
  }
  const auto n = static_cast<int64_t>(s.answer.size());
  return n > 0 && n >= s.request->request.max_tokens ? FinishReason::kLength : FinishReason::kNone;
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
