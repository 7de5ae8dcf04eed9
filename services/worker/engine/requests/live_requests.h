// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/engine/types/metrics.h"

namespace continuo::engine {

// One reading of the clock.
struct Moment {
  absl::Time wall;         // for deadlines
  absl::Duration elapsed;  // for durations
};

// Owns every request that has not ended, its deadlines, and the news for its sink. Knows nothing
// of KV blocks and steps. Not thread-safe.
class LiveRequests {
 public:
  explicit LiveRequests(EngineMetrics* metrics) : metrics_(*metrics) {}

  // Returns null if the id is already live, and tells `sink` so. The caller sets the tenant.
  LiveRequest* Add(Request request, RequestSink sink, absl::Duration submitted);
  LiveRequest* Find(RequestId id);
  // Returns an arbitrary one, or null if there is none.
  LiveRequest* Any() { return live_.empty() ? nullptr : live_.begin()->second.get(); }
  // Returns the earliest one whose deadline or time limit has passed, or null.
  LiveRequest* NextDue(absl::Time now);
  bool empty() const { return live_.empty(); }
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const auto& [id, r] : live_) visit(std::as_const(*r));
  }

  // The first token of the prompt enters a step, or the request ends with OK without one.
  void Start(LiveRequest& r, const Moment& now);
  void AddScore(LiveRequest& r, model::TokenScore score);
  void AddState(LiveRequest& r, std::vector<float> state);
  void AddToken(Sequence& s, int32_t token, model::TokenScore score, const Moment& now);
  // Reports why `s` ends, together with its last token if that is from this step.
  void AddFinish(Sequence& s, FinishReason finish);
  void AddProgress(LiveRequest& r, const PromptProgress& progress);
  // Makes the last event. The object lives until the next Deliver(), and until its last step has
  // been committed.
  void End(LiveRequest& r, absl::Status why, const Moment& now);

  // Calls the sinks of all that have news. Frees requests that have ended and are part of no step
  // after `num_steps`.
  void Deliver(uint64_t num_steps);

 private:
  RequestEvent& EventOf(LiveRequest& r);

  EngineMetrics& metrics_;
  absl::flat_hash_map<RequestId, std::unique_ptr<LiveRequest>> live_;
  absl::btree_set<std::pair<absl::Time, RequestId>> due_;
  std::vector<LiveRequest*> news_;
  std::vector<std::unique_ptr<LiveRequest>> ended_;
  uint64_t next_order_ = 0;
  model::SequenceId next_sequence_id_ = 1;
};

}  // namespace continuo::engine
