// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/requests/live_requests.h"
#include "services/worker/engine/requests/tenant_shares.h"
#include "services/worker/engine/requests/waiting_queue.h"
#include "services/worker/engine/types/metrics.h"

namespace continuo::engine {

// Knows where every request stands: which of its sequences wait in the queue, which are pending
// until a sibling has prefilled their prompt, and which have finished. Holds no KV block: whoever
// finishes or ends a running sequence releases its blocks. Not thread-safe.
//
// Only the prefill leader of a request computes the prompt; its siblings wait.
class RequestBook {
 public:
  // `max_batch_tokens` scales how far tenants may be apart.
  RequestBook(int max_batch_tokens, EngineMetrics* metrics);

  // Puts the first unfinished sequence into the queue, as the prefill leader. Returns null if the
  // id is already live. The caller ends a request that has no unfinished sequence.
  LiveRequest* Add(Request request, RequestSink sink, absl::Duration submitted);
  // Makes the last event, with `why`. All sequences must be finished.
  void End(LiveRequest& r, absl::Status why, const Moment& now);

  // Sequences enter and leave the waiting queue.
  void Enqueue(Sequence& s);
  void Dequeue(Sequence& s);
  // Takes back a sequence that was preempted: it waits, or is pending while a sibling leads.
  void Requeue(Sequence& s);

  // `s` has begun to run. It becomes the prefill leader if it lacks the prompt; siblings in the
  // queue are pending then. If it led and has the prompt, the siblings may go on.
  void OnRunning(Sequence& s);
  // The whole prompt has been computed: pending siblings enter the queue.
  void OnPrefillDone(LiveRequest& r);
  // Nothing of `s` is left to compute; `step` is the last committed one. It leaves the queue and
  // no longer leads.
  void OnFinished(Sequence& s, uint64_t step);
  // After OnFinished of the leader, while siblings remain: another one leads, unless the blocks of
  // the leader were transferred to a sibling.
  void ReplaceLeader(LiveRequest& r, bool blocks_transferred);
  // The request leaves the queue for good. Returns false if it already had.
  bool MarkAdmitted(LiveRequest& r);
  // The tokens of `s` that steps in flight sample are lost.
  void DropInFlight(Sequence& s);

  // Tells requests that want progress their place in the queue. Walks the whole queue, so it does
  // so less often if many of the `num_waiting` sequences wait.
  void ReportQueuePositions(const Moment& now, int num_waiting);

  LiveRequests& live() { return live_; }
  const LiveRequests& live() const { return live_; }
  WaitingQueue& waiting() { return waiting_; }
  const WaitingQueue& waiting() const { return waiting_; }
  TenantShares& tenants() { return tenants_; }
  const TenantShares& tenants() const { return tenants_; }

  // Sequences of live requests that have not finished.
  int num_unfinished() const { return num_unfinished_; }
  // Prompt and received tokens of requests that were never admitted.
  int64_t waiting_tokens() const { return waiting_tokens_; }
  // Tokens of the sequences in the queue, all of which are to be computed.
  int64_t queued_tokens() const { return queued_tokens_; }
  // Requests that have left the queue since the last call, because they were admitted, ended or
  // never taken in: tenant and queue cost of each.
  std::vector<std::pair<std::string, int64_t>> TakeLeftQueue() {
    return std::exchange(left_queue_, {});
  }

 private:
  LiveRequests live_;
  TenantShares tenants_;
  WaitingQueue waiting_;
  int num_unfinished_ = 0;
  int64_t waiting_tokens_ = 0, queued_tokens_ = 0;
  uint64_t num_tickets_ = 0;  // given to sequences that entered the queue
  std::vector<std::pair<std::string, int64_t>> left_queue_;
  int num_watched_ = 0;  // requests that were never admitted and want progress
  absl::Duration positions_reported_ = -absl::InfiniteDuration();
};

}  // namespace continuo::engine
