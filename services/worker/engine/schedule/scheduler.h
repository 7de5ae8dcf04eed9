// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/schedule/preemption.h"
#include "services/worker/engine/schedule/residency.h"
#include "services/worker/engine/schedule/speculation.h"
#include "services/worker/engine/schedule/step_commit.h"
#include "services/worker/engine/schedule/step_filler.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/engine/types/step_record.h"

namespace continuo::engine {

// Decides which tokens of which sequences run in each step, and which sequences hold KV blocks.
// Reads no clock and knows no thread: the caller passes the time in and runs the plans. The rules
// are in docs/scheduling.md. Not thread-safe.
//
//   Add, End, FinishSequence, Expire → Schedule → (run) → Commit → Deliver
//
// If CanOverlap() allows it, one more Schedule may come before Commit (overlapped scheduling): that
// step is planned before the tokens of the step in flight are known. Whatever these tokens
// invalidate is dropped when the overlapped step is committed.
class Scheduler {
 public:
  Scheduler(const EngineOptions& options, EngineMetrics* metrics);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // `submitted` is the Clock::Elapsed of Submit.
  void Add(Request request, RequestSink sink, absl::Duration submitted, const Moment& now);
  void End(RequestId id, absl::Status why, const Moment& now);
  void EndAll(const absl::Status& why, const Moment& now);
  void FinishSequence(RequestId id, int index, const Moment& now);
  // Ends what is past its deadline or time limit.
  void Expire(const Moment& now);

  // Plans the next step. The plan has tokens unless idle(), and is valid until its Commit. An
  // overlapped plan may have none, and is then no step.
  const model::StepPlan& Schedule(const Moment& now);
  // Returns the number of steps that have not been committed: at most 2.
  int num_steps_in_flight() const { return static_cast<int>(step_ - num_committed_); }
  // Returns whether the next step may be planned while one is in flight.
  bool CanOverlap() const;
  // Returns the predicted duration of the step that was planned last.
  absl::Duration predicted() const { return next_->predicted; }
  // A MaskFiller for the step that was planned last.
  void FillMask(std::span<uint32_t> mask) { next_->plan.FillMask(mask, options_.vocab_size); }
  // Takes the result of the step that has been in flight longest, and how long it took. Returns
  // Internal if the result does not fit the plan; nothing is changed then. The scores are moved
  // from, the vectors remain the caller's.
  absl::Status Commit(model::StepResult&& result, const Moment& now, absl::Duration measured);
  // Updates the gauges and calls the sinks of all requests that have news. A sink must not call
  // this class.
  void Deliver();

  bool idle() const { return book_.live().empty(); }
  int num_running() const { return residency_.num_running(); }
  // At most so many sequences run at a time.
  int max_running() const { return residency_.max_running(); }
  int num_waiting() const { return book_.num_unfinished() - num_running(); }
  // See RequestBook.
  int64_t waiting_tokens() const { return book_.waiting_tokens(); }
  std::vector<std::pair<std::string, int64_t>> TakeLeftQueue() { return book_.TakeLeftQueue(); }
  // Returns how many tokens are to be computed before every live sequence decodes.
  int64_t pending_prompt_tokens() const {
    return book_.queued_tokens() + residency_.pending_prompt_tokens();
  }
  const BlockPool& pool() const { return residency_.pool(); }
  KvEventRecorder& kv_events() { return residency_.kv_events(); }
  const StatePool& states() const { return residency_.states().pool(); }
  StepCost& cost() { return cost_; }
  // These belong to the last Commit: prompt tokens that its step computed, and tokens it sampled.
  int64_t prompt_tokens() const { return Committed().prompt_tokens; }
  int64_t sampled_tokens() const { return commit_.sampled_tokens(); }

  // Fills `record` with what the step of the last Commit ran, before Deliver.
  void Describe(StepRecord& record) const;

  // See invariants.h. For tests.
  absl::Status CheckInvariants() const;

 private:
  PlannedStep& StepOf(uint64_t step) { return steps_[step % steps_.size()]; }
  const PlannedStep& Committed() const { return steps_[num_committed_ % steps_.size()]; }

  void WritePlan(PlannedStep& step, const Moment& now);
  void AssumeSampled(const PlannedStep& step);
  void Rollback(const PlannedSample& sample);
  void Finish(Sequence& s, const Moment& now);
  void EndRequest(LiveRequest& r, absl::Status why, const Moment& now);
  void UpdateGauges();
  void CountTokenTime(const PlannedStep& step, int64_t accepted_drafts, absl::Duration measured);

  const EngineOptions options_;
  EngineMetrics& metrics_;
  StepCost cost_;
  RequestBook book_;
  Residency residency_;
  Preemption preemption_;
  StepFiller filler_;
  Speculation speculation_;
  StepCommit commit_;

  // Numbers of the last step planned and of the last step committed; steps count from 1.
  uint64_t step_ = 0, num_committed_ = 0;
  std::array<PlannedStep, 2> steps_;
  PlannedStep* next_;  // the step that is being planned, or was planned last
  uint64_t num_turns_ = 0;
};

}  // namespace continuo::engine
