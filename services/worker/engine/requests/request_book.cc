// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/request_book.h"

#include "services/base/check.h"

namespace continuo::engine {
namespace {

constexpr absl::Duration kReportPositionsEvery = absl::Milliseconds(100);
// About a hundred times what it takes to report the position of one sequence.
constexpr absl::Duration kPauseForEach = absl::Microseconds(20);

// Both are multiples of max_batch_tokens: the tokens that an idle tenant saves up, and the deficit
// from which on one tenant preempts another.
constexpr double kBurst = 4, kSlack = 0.125;

}  // namespace

RequestBook::RequestBook(int max_batch_tokens, EngineMetrics* metrics)
    : live_(metrics),
      tenants_(static_cast<int64_t>(kBurst * max_batch_tokens),
               static_cast<int64_t>(kSlack * max_batch_tokens)) {}

LiveRequest* RequestBook::Add(Request request, RequestSink sink, absl::Duration submitted) {
  const std::string tenant = request.tenant;
  const int64_t cost = QueueCost(request);
  LiveRequest* r = live_.Add(std::move(request), std::move(sink), submitted);
  if (r == nullptr) {
    left_queue_.emplace_back(tenant, cost);
    return nullptr;
  }
  r->queue_cost = cost;
  r->tenant = tenants_.Enter(r->request.tenant);
  num_unfinished_ += r->num_unfinished;
  waiting_tokens_ += cost;
  if (r->request.want_progress) ++num_watched_;
  for (Sequence& s : r->sequences) {
    if (s.state == SequenceState::kFinished) continue;
    r->prefill_leader = &s;
    Enqueue(s);
    break;
  }
  return r;
}

void RequestBook::End(LiveRequest& r, absl::Status why, const Moment& now) {
  CONTINUO_CHECK(r.num_unfinished == 0);
  MarkAdmitted(r);
  tenants_.Leave(*r.tenant);
  live_.End(r, std::move(why), now);
}

void RequestBook::Enqueue(Sequence& s) {
  CONTINUO_CHECK(s.state != SequenceState::kWaiting && s.blocks.empty());
  s.state = SequenceState::kWaiting;
  s.queue_ticket = ++num_tickets_;
  queued_tokens_ += NumTokens(s);
  waiting_.Insert(&s);
}

void RequestBook::Dequeue(Sequence& s) {
  waiting_.Erase(&s);
  queued_tokens_ -= NumTokens(s);
}

void RequestBook::Requeue(Sequence& s) {
  const Sequence* leader = s.request->prefill_leader;
  if (leader == nullptr || leader == &s) {
    Enqueue(s);
  } else {
    s.state = SequenceState::kPending;
  }
}

void RequestBook::OnRunning(Sequence& s) {
  LiveRequest& r = *s.request;
  if (s.num_computed >= r.prompt_tokens()) {
    if (r.prefill_leader == &s) OnPrefillDone(r);
    return;
  }
  CONTINUO_CHECK(r.prefill_leader == nullptr || r.prefill_leader == &s);
  r.prefill_leader = &s;
  for (Sequence& sibling : r.sequences) {
    if (&sibling == &s || sibling.state != SequenceState::kWaiting) continue;
    Dequeue(sibling);
    sibling.state = SequenceState::kPending;
  }
}

void RequestBook::OnPrefillDone(LiveRequest& r) {
  r.prefill_leader = nullptr;
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kPending && s.finish == FinishReason::kNone) Enqueue(s);
  }
}

void RequestBook::OnFinished(Sequence& s, uint64_t step) {
  LiveRequest& r = *s.request;
  CONTINUO_CHECK(s.state != SequenceState::kFinished);
  if (s.state == SequenceState::kWaiting) Dequeue(s);
  s.state = SequenceState::kFinished;
  s.finished_after = step;
  --r.num_unfinished;
  --num_unfinished_;
  if (r.prefill_leader == &s) r.prefill_leader = nullptr;
}

void RequestBook::ReplaceLeader(LiveRequest& r, bool blocks_transferred) {
  if (blocks_transferred) {
    // The whole prompt may be in flight; then nobody leads.
    if (r.prefill_leader == nullptr) OnPrefillDone(r);
    return;
  }
  for (Sequence& sibling : r.sequences) {
    if (sibling.state != SequenceState::kPending) continue;
    r.prefill_leader = &sibling;
    Enqueue(sibling);
    return;
  }
}

bool RequestBook::MarkAdmitted(LiveRequest& r) {
  if (r.admitted) return false;
  r.admitted = true;
  waiting_tokens_ -= r.queue_cost;
  left_queue_.emplace_back(r.request.tenant, r.queue_cost);
  if (r.request.want_progress) --num_watched_;
  return true;
}

void RequestBook::DropInFlight(Sequence& s) {
  if (s.state == SequenceState::kWaiting) queued_tokens_ -= s.num_in_flight;
  s.num_in_flight = 0;
}

void RequestBook::ReportQueuePositions(const Moment& now, int num_waiting) {
  const absl::Duration pause = kReportPositionsEvery + num_waiting * kPauseForEach;
  if (num_watched_ == 0 || now.elapsed - positions_reported_ < pause) return;
  positions_reported_ = now.elapsed;
  int ahead = 0;
  const LiveRequest* before = nullptr;
  for (const Sequence* s : waiting_.InOrder()) {
    LiveRequest& r = *s->request;
    if (r.request.want_progress && !r.admitted && r.queue_position != ahead) {
      r.queue_position = ahead;
      live_.AddProgress(r, {.queue_position = ahead, .prompt_tokens = r.prompt_tokens()});
    }
    if (before != &r) ++ahead;
    before = &r;
  }
}

}  // namespace continuo::engine
