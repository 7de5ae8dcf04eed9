// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/metrics.h"
#include "services/worker/engine/sequence.h"

namespace continuo::engine {

// One reading of the clock.
struct Moment {
  absl::Time wall;         // for deadlines
  absl::Duration elapsed;  // for durations
};

// Every request that has not ended, its deadlines, and what is to be told to its sink. Knows
// nothing of blocks and steps. Not thread-safe.
class LiveRequests {
 public:
  explicit LiveRequests(EngineMetrics* metrics) : metrics_(*metrics) {}

  // Null where the id is already live; `sink` is told so then. The caller sets the tenant.
  LiveRequest* Add(Request request, RequestSink sink, absl::Duration submitted);
  LiveRequest* Find(RequestId id);
  // Null: none. The order is arbitrary.
  LiveRequest* Any() { return live_.empty() ? nullptr : live_.begin()->second.get(); }
  // One whose deadline or time limit has come, the earliest first; null: none.
  LiveRequest* NextDue(absl::Time now);
  bool empty() const { return live_.empty(); }
  template <typename Visitor>
  void ForEach(Visitor visit) const {
    for (const auto& [id, r] : live_) visit(std::as_const(*r));
  }

  // The first row of the prompt enters a step, or the request ends in good order without one.
  void Start(LiveRequest& r, const Moment& now);
  void AddScore(LiveRequest& r, model::TokenScore score);
  void AddToken(Sequence& s, int32_t token, model::TokenScore score, const Moment& now);
  // Tells why `s` ends, with its last token where that is from this step.
  void AddFinish(Sequence& s, FinishReason finish);
  void AddProgress(LiveRequest& r, const PromptProgress& progress);
  // The last event. The object lives until the next Deliver(), and as long as its last step.
  void End(LiveRequest& r, absl::Status why, const Moment& now);

  // Calls the sinks of all that have news; forgets what has ended and is part of no step after
  // `num_steps`.
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
