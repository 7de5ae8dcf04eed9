// SPDX-License-Identifier: Apache-2.0
// Where requests stand: waiting, pending behind a sibling, running, finished, ended.
#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/worker/engine/scheduler.h"

namespace continuo::engine {
namespace {

constexpr absl::Duration kTellPositionsEvery = absl::Milliseconds(100);
constexpr absl::Duration kTellOneTakes = absl::Microseconds(20);  // a hundred times what it takes

}  // namespace

void Scheduler::Add(Request request, RequestSink sink, absl::Duration submitted,
                    const Moment& now) {
  const std::string tenant = request.tenant;
  const int64_t cost = QueueCost(request);
  LiveRequest* r = live_.Add(std::move(request), std::move(sink), submitted);
  if (r == nullptr) {
    left_queue_.emplace_back(tenant, cost);
    return;
  }
  r->queue_cost = cost;
  r->tenant = tenants_.Enter(r->request.tenant);
  num_unfinished_ += r->num_unfinished;
  waiting_tokens_ += cost;
  if (r->request.want_progress) ++num_watched_;
  if (r->num_unfinished == 0) {
    live_.Start(*r, now);
    EndRequest(*r, absl::OkStatus(), now);
    return;
  }
  // The first one reads the prompt, the others share it.
  for (Sequence& s : r->sequences) {
    if (s.state == SequenceState::kFinished) continue;
    r->reader = &s;
    Enqueue(s);
    break;
  }
  TellQueuePositions(now);
}

// To those that are not admitted yet and want to know. Walks the whole queue, so less often where
// it is long.
void Scheduler::TellQueuePositions(const Moment& now) {
  const absl::Duration pause = kTellPositionsEvery + num_waiting() * kTellOneTakes;
  if (num_watched_ == 0 || now.elapsed - positions_told_ < pause) return;
  positions_told_ = now.elapsed;
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

void Scheduler::End(RequestId id, absl::Status why, const Moment& now) {
  if (LiveRequest* r = live_.Find(id)) EndRequest(*r, std::move(why), now);
}

void Scheduler::EndAll(const absl::Status& why, const Moment& now) {
  while (LiveRequest* r = live_.Any()) EndRequest(*r, why, now);
}

void Scheduler::FinishSequence(RequestId id, int index, const Moment& now) {
  LiveRequest* r = live_.Find(id);
  if (r == nullptr || index < 0 || index >= static_cast<int>(r->sequences.size())) return;
  Sequence& s = r->sequences[index];
  if (s.state != SequenceState::kFinished) {
    FinishOne(s, now);
  } else if (!r->started) {
    s.finish = FinishReason::kNone;  // an end that a continuation brought is no longer told
  }
}

void Scheduler::Expire(const Moment& now) {
  while (LiveRequest* r = live_.NextDue(now.wall)) {
    if (r->request.deadline < r->request.time_limit) {
      EndRequest(*r, absl::DeadlineExceededError("the deadline has passed"), now);
      continue;
    }
    live_.Start(*r, now);
    for (Sequence& s : r->sequences) {
      if (s.state != SequenceState::kFinished) live_.AddFinish(s, FinishReason::kTimeLimit);
    }
    EndRequest(*r, absl::OkStatus(), now);
  }
}

void Scheduler::Enqueue(Sequence& s) {
  CONTINUO_CHECK(s.state != SequenceState::kWaiting && s.blocks.empty());
  s.state = SequenceState::kWaiting;
  waiting_rows_ += NumTokens(s);
  waiting_.Insert(&s);
}

void Scheduler::Dequeue(Sequence& s) {
  waiting_.Erase(&s);
  waiting_rows_ -= NumTokens(s);
  if (blocked_ == &s) blocked_ = nullptr;
  if (unhelped_ == &s) unhelped_ = nullptr;
}

// Of a request's sequences that lack the prompt only one computes it; the others wait for that.
void Scheduler::BecomeReader(Sequence& s) {
  LiveRequest& r = *s.request;
  CONTINUO_CHECK(r.reader == nullptr || r.reader == &s);
  r.reader = &s;
  for (Sequence& sibling : r.sequences) {
    if (&sibling == &s || sibling.state != SequenceState::kWaiting) continue;
    Dequeue(sibling);
    sibling.state = SequenceState::kPending;
  }
}

void Scheduler::PromptRead(LiveRequest& r) {
  r.reader = nullptr;
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kPending && s.finish == FinishReason::kNone) Enqueue(s);
  }
}

void Scheduler::FinishOne(Sequence& s, const Moment& now) {
  LiveRequest& r = *s.request;
  const SequenceState was = std::exchange(s.state, SequenceState::kFinished);
  s.finished_after = num_committed_;
  if (options_.drafter != nullptr) options_.drafter->Forget(s.id);
  --r.num_unfinished;
  --num_unfinished_;
  if (was == SequenceState::kWaiting) Dequeue(s);
  const bool was_reader = r.reader == &s;
  if (was_reader) r.reader = nullptr;
  bool handed_over = false;
  if (was == SequenceState::kRunning) {
    if (!s.answer.empty()) admission_.Record(static_cast<int>(s.answer.size()));
    LeaveRunning(s);
    handed_over = HandOver(s);
    ReleaseBlocks(s);
  }
  if (r.num_unfinished == 0) {
    live_.Start(r, now);
    EndRequest(r, absl::OkStatus(), now);
  } else if (was_reader && handed_over) {
    // The whole prompt may be under way.
    if (r.reader == nullptr) PromptRead(r);
  } else if (was_reader) {
    for (Sequence& sibling : r.sequences) {
      if (sibling.state != SequenceState::kPending) continue;
      r.reader = &sibling;
      Enqueue(sibling);
      break;
    }
  }
}

// A sequence that ends leaves the prompt it holds to a sibling that waits for it. Nothing is
// copied, and a prompt without a place in the cache is not computed again.
bool Scheduler::HandOver(Sequence& from) {
  LiveRequest& r = *from.request;
  if (r.reader != nullptr) return false;
  for (Sequence& s : r.sequences) {
    const bool waits = s.state == SequenceState::kWaiting || s.state == SequenceState::kPending;
    // What was promised to a guaranteed one is checked where it is admitted.
    if (!waits || s.guaranteed || s.finish != FinishReason::kNone) continue;
    // What is presumed of the heir may prove wrong: it draws from a row of its own then.
    const int known = std::min({from.num_computed, r.prompt_tokens(), TokensOf(s).size() - 1});
    const int full = known / options_.block_size, rest = known % options_.block_size;
    // The last block may have been filled and published with the other's answer.
    const bool keeps_last = rest > 0 && pool_.references(from.blocks[full]) == 1 &&
                            !pool_.IsPublished(from.blocks[full]);
    const int kept = full + (keeps_last ? 1 : 0);
    if (kept == 0) return false;
    if (s.state == SequenceState::kWaiting) Dequeue(s);
    s.blocks.assign(from.blocks.begin(), from.blocks.begin() + kept);
    from.blocks.erase(from.blocks.begin(), from.blocks.begin() + kept);
    s.num_computed = keeps_last ? known : full * options_.block_size;
    s.num_shared = std::min(from.num_shared, full);
    s.num_published = std::min(from.num_published, full);
    s.publishes = from.publishes;
    s.admitted_in = step_;
    JoinRunning(s);
    return true;
  }
  return false;
}

void Scheduler::EndRequest(LiveRequest& r, absl::Status why, const Moment& now) {
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kRunning) {
      LeaveRunning(s);
      ReleaseBlocks(s);
    } else if (s.state == SequenceState::kWaiting) {
      Dequeue(s);
    }
    if (s.state == SequenceState::kFinished) continue;
    --num_unfinished_;
    s.state = SequenceState::kFinished;
    s.finished_after = num_committed_;
    if (options_.drafter != nullptr) options_.drafter->Forget(s.id);
  }
  CountAdmitted(r);  // or will never be
  tenants_.Leave(*r.tenant);
  live_.End(r, std::move(why), now);
}

void Scheduler::CountAdmitted(LiveRequest& r) {
  if (r.admitted) return;
  r.admitted = true;
  waiting_tokens_ -= r.queue_cost;
  left_queue_.emplace_back(r.request.tenant, r.queue_cost);
  if (r.request.want_progress) --num_watched_;
}

int64_t Scheduler::pending_prompt_tokens() const {
  int64_t rows = waiting_rows_;
  for (const Sequence* s : running_) {
    const int remaining = NumRemaining(*s);
    if (remaining > 1) rows += remaining;
  }
  return rows;
}

}  // namespace continuo::engine
