// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/scheduler.h"

#include <algorithm>
#include <utility>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/schedule/invariants.h"

namespace continuo::engine {
namespace {

// A sample that the device leaves to the host is likely followed by more of the kind.
constexpr int kSynchronousAfterLost = 32;

// No step overlaps one that is predicted to take longer than target_step / kOverlapShare: the gap
// that it would close is small beside that, and requests that arrive meanwhile would wait for both.
constexpr int kOverlapShare = 4;

}  // namespace

Scheduler::Scheduler(const EngineOptions& options, EngineMetrics* metrics)
    : options_(options),
      metrics_(*metrics),
      book_(options.max_batch_tokens, metrics),
      residency_(&options_, &book_, metrics),
      preemption_(&book_, &residency_),
      filler_(&options_, &cost_, &book_, &residency_),
      speculation_(&options_, &cost_, &book_.tenants(), &residency_, metrics),
      commit_(options.vocab_size, &book_, metrics),
      steps_{PlannedStep{.plan = {options.block_size, options.max_batch_tokens}},
             PlannedStep{.plan = {options.block_size, options.max_batch_tokens}}},
      next_(&steps_[0]) {
  CONTINUO_CHECK(options.max_batch_tokens >= 1 && options.max_prefill_chunk >= 1 &&
                 options.max_running >= 1 && options.num_state_slots != 1);
  UpdateGauges();
}

void Scheduler::Add(Request request, RequestSink sink, absl::Duration submitted,
                    const Moment& now) {
  // Of an encoder a token's keys and values depend on what lies behind it.
  if (options_.whole_prompts) request.cache_bypass = true;
  LiveRequest* r = book_.Add(std::move(request), std::move(sink), submitted);
  if (r == nullptr) return;
  if (r->num_unfinished > 0) {
    book_.ReportQueuePositions(now, num_waiting());
    return;
  }
  book_.live().Start(*r, now);
  EndRequest(*r, absl::OkStatus(), now);
}

void Scheduler::End(RequestId id, absl::Status why, const Moment& now) {
  if (LiveRequest* r = book_.live().Find(id)) EndRequest(*r, std::move(why), now);
}

void Scheduler::EndAll(const absl::Status& why, const Moment& now) {
  while (LiveRequest* r = book_.live().Any()) EndRequest(*r, why, now);
}

void Scheduler::FinishSequence(RequestId id, int index, const Moment& now) {
  LiveRequest* r = book_.live().Find(id);
  if (r == nullptr || index < 0 || index >= static_cast<int>(r->sequences.size())) return;
  Sequence& s = r->sequences[index];
  if (s.state != SequenceState::kFinished) {
    Finish(s, now);
  } else if (!r->started) {
    s.finish = FinishReason::kNone;  // the finish that a continuation brought is not reported
  }
}

void Scheduler::Expire(const Moment& now) {
  LiveRequests& live = book_.live();
  while (LiveRequest* r = live.NextDue(now.wall)) {
    if (r->request.deadline < r->request.time_limit) {
      EndRequest(*r, absl::DeadlineExceededError("the deadline has passed"), now);
      continue;
    }
    live.Start(*r, now);
    for (Sequence& s : r->sequences) {
      if (s.state != SequenceState::kFinished) live.AddFinish(s, FinishReason::kTimeLimit);
    }
    EndRequest(*r, absl::OkStatus(), now);
  }
}

const model::StepPlan& Scheduler::Schedule(const Moment& now) {
  CONTINUO_CHECK(num_steps_in_flight() <= 1);
  const bool is_overlapped = num_steps_in_flight() == 1;
  next_ = &StepOf(++step_);
  PlannedStep& step = *next_;
  step.Clear(step_, std::min<int64_t>(options_.max_batch_tokens, cost_.max_tokens()));
  // Who yields is decided when it is known who ends.
  if (!is_overlapped) preemption_.MakeRoom(step);
  filler_.Fill(step, is_overlapped);
  if (is_overlapped && step.scheduled.empty()) {
    CONTINUO_CHECK(step.plan.plan().block_copies.empty());
    next_ = &StepOf(--step_);
    return step.plan.plan();
  }
  CONTINUO_CHECK(!step.scheduled.empty() || idle());
  residency_.states().PlaceScheduled(step);
  speculation_.AddDrafts(step, is_overlapped);
  OrderDecodesFirst(step);
  WritePlan(step, now);
  AssumeSampled(step);
  step.predicted = cost_.Predict(step.load);
  book_.ReportQueuePositions(now, num_waiting());
  return step.plan.plan();
}

void Scheduler::WritePlan(PlannedStep& step, const Moment& now) {
  int max_blocks = 0;
  for (const ScheduledTokens& t : step.scheduled) {
    max_blocks =
        std::max(max_blocks, BlocksFor(t.begin + t.num_tokens + t.num_drafts, options_.block_size));
  }
  step.plan.SetMaxBlocks(max_blocks);
  step.prompt_tokens = 0;
  for (const ScheduledTokens& t : step.scheduled) {
    Sequence& s = *t.sequence;
    book_.live().Start(*s.request, now);
    s.request->last_step = step.number;
    s.last_turn = ++num_turns_;
    if (NumRemaining(s) > 1 || NumAnswered(s) == 0) step.prompt_tokens += t.num_tokens;
    residency_.states().PlaceSnapshots(t);
    step.plan.Add(s, t.num_tokens, speculation_.DraftsOf(t));
  }
  const auto constrained =
      std::ranges::count_if(step.plan.samples(), &PlannedSample::is_constrained);
  metrics_.constrained_samples.fetch_add(static_cast<uint64_t>(constrained),
                                         std::memory_order_relaxed);
}

// The next sample may depend on tokens that only the device knows, but not on drafts, scored
// prompts or samples that the host has to make, and its mask not on any of these tokens.
bool Scheduler::CanOverlap() const {
  // A state is written in place, so that none is left to go back to.
  if (options_.num_state_slots > 0) return false;
  if (num_steps_in_flight() != 1 || idle() || preemption_.MayPreempt()) return false;
  if (next_->predicted > options_.target_step / kOverlapShare) return false;
  if (!speculation_.CanOverlap()) return false;
  for (const ScheduledTokens& t : next_->scheduled) {
    if (t.num_drafts > 0) return false;
  }
  for (const PlannedSample& sample : next_->plan.samples()) {
    if (sample.scores_prompt) return false;
    const Sequence& s = *sample.sequence;
    if (s.state == SequenceState::kFinished) continue;
    if (s.num_synchronous_samples > 0 || MaskNeedsAnswer(s.request->request)) return false;
  }
  return residency_.CanReserveNextTokens();
}

// From here on the step counts as done, except that its tokens are not known.
void Scheduler::AssumeSampled(const PlannedStep& step) {
  for (const ScheduledTokens& t : step.scheduled) t.sequence->num_computed += t.num_tokens;
  const auto samples = step.plan.samples();
  for (size_t k = 0; k < samples.size(); ++k) {
    if (samples[k].scores_prompt || samples[k].reads_state || samples[k].draft >= 0) continue;
    Sequence& s = *samples[k].sequence;
    ++s.num_in_flight;
    s.in_flight_sample = static_cast<int32_t>(k);
  }
}

// The sample was lost, and the overlapped step has gone on without its token: the last known token
// is computed again, and everything sampled after it is void.
void Scheduler::Rollback(const PlannedSample& sample) {
  Sequence& s = *sample.sequence;
  if (s.state == SequenceState::kFinished || sample.epoch != s.epoch) return;
  book_.DropInFlight(s);
  ++s.epoch;
  s.num_synchronous_samples = kSynchronousAfterLost;
  if (s.state == SequenceState::kRunning) {
    s.num_computed = std::min(s.num_computed, NumTokens(s) - 1);
  }
}

absl::Status Scheduler::Commit(model::StepResult&& result, const Moment& now,
                               absl::Duration measured) {
  CONTINUO_CHECK(num_steps_in_flight() > 0);
  const PlannedStep& step = StepOf(num_committed_ + 1);
  RETURN_IF_ERROR(commit_.Check(step, result, /*was_overlapped=*/num_steps_in_flight() > 1));
  ++num_committed_;
  cost_.Observe(step.load, measured);
  const uint64_t accepted_before = metrics_.accepted_draft_tokens.load(std::memory_order_relaxed);
  metrics_.step_seconds.Observe(absl::ToDoubleSeconds(measured));
  metrics_.step_rows.Observe(static_cast<double>(step.load.tokens));

  for (size_t k = 0; k < result.token_ids.size(); ++k) {
    if (result.token_ids[k] < 0) Rollback(step.plan.samples()[k]);
  }
  for (const ScheduledTokens& t : step.scheduled) {
    if (t.sequence->state == SequenceState::kRunning) {
      residency_.Publish(*t.sequence, t.begin + t.num_tokens);
    }
  }
  commit_.TakeSamples(step, result, now);
  for (const ScheduledTokens& t : step.scheduled) {
    if (t.sequence->state == SequenceState::kFinished) continue;
    if (t.num_drafts > 0) speculation_.OnVerified(t);
    residency_.states().Commit(*t.sequence);
    commit_.TakePrefill(t);
  }
  for (Sequence* s : commit_.finished()) Finish(*s, now);
  for (const auto& [s, why] : commit_.failed()) {
    if (!s->request->has_ended) EndRequest(*s->request, why, now);
  }
  speculation_.OnCommitted(step);
  const uint64_t accepted =
      metrics_.accepted_draft_tokens.load(std::memory_order_relaxed) - accepted_before;
  CountTokenTime(step, static_cast<int64_t>(accepted), measured);
  return absl::OkStatus();
}

void Scheduler::CountTokenTime(const PlannedStep& step, int64_t accepted_drafts,
                               absl::Duration measured) {
  int64_t drafts = 0;
  for (const ScheduledTokens& t : step.scheduled) drafts += t.num_drafts;
  const absl::Duration took = cost_.TokenTime(step.load, drafts - accepted_drafts, measured);
  // One thread writes.
  metrics_.token_seconds.store(
      metrics_.token_seconds.load(std::memory_order_relaxed) + absl::ToDoubleSeconds(took),
      std::memory_order_relaxed);
}

void Scheduler::Finish(Sequence& s, const Moment& now) {
  LiveRequest& r = *s.request;
  const bool was_leader = r.prefill_leader == &s;
  const bool was_running = s.state == SequenceState::kRunning;
  book_.OnFinished(s, num_committed_);
  speculation_.Forget(s);
  const bool transferred = was_running && residency_.Retire(s, step_);
  if (r.num_unfinished == 0) {
    book_.live().Start(r, now);
    EndRequest(r, absl::OkStatus(), now);
  } else if (was_leader) {
    book_.ReplaceLeader(r, transferred);
  }
}

void Scheduler::EndRequest(LiveRequest& r, absl::Status why, const Moment& now) {
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kFinished) continue;
    if (s.state == SequenceState::kRunning) residency_.Remove(s);
    book_.OnFinished(s, num_committed_);
    speculation_.Forget(s);
  }
  residency_.states().OnEnded(r);
  book_.End(r, std::move(why), now);
}

void Scheduler::Deliver() {
  UpdateGauges();
  book_.live().Deliver(num_committed_);
}

void Scheduler::UpdateGauges() {
  constexpr auto relaxed = std::memory_order_relaxed;
  metrics_.running_requests.store(num_running(), relaxed);
  metrics_.waiting_requests.store(num_waiting(), relaxed);
  metrics_.waiting_prompt_tokens.store(waiting_tokens(), relaxed);
  metrics_.kv_blocks_used.store(pool().num_used(), relaxed);
  metrics_.kv_blocks_cached.store(pool().num_cached(), relaxed);
  metrics_.kv_blocks_total.store(pool().num_blocks(), relaxed);
  metrics_.state_slots_used.store(states().num_used(), relaxed);
  metrics_.state_slots_kept.store(states().num_kept(), relaxed);
  metrics_.state_slots_total.store(states().num_slots(), relaxed);
  metrics_.kv_blocks_unaccounted.store(residency_.unaccounted_blocks(), relaxed);
}

void Scheduler::Describe(StepRecord& record) const {
  engine::Describe(Committed(), record);
  record.waiting = num_waiting();
  record.used_blocks = pool().num_used();
}

absl::Status Scheduler::CheckInvariants() const {
  return engine::CheckInvariants(book_, residency_, num_steps_in_flight() > 0);
}

}  // namespace continuo::engine
