// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/engine/admission.h"
#include "services/worker/engine/block_pool.h"
#include "services/worker/engine/engine.h"
#include "services/worker/engine/live_requests.h"
#include "services/worker/engine/plan_builder.h"
#include "services/worker/engine/step_cost.h"
#include "services/worker/engine/tenant_shares.h"
#include "services/worker/engine/waiting_queue.h"

namespace continuo::engine {

// Decides which tokens of which sequences run in each step, and which sequences hold blocks.
// Reads no clock, knows no thread: a caller passes the time in and runs the plans. README.md of
// this folder tells the rules. Not thread-safe.
//
//   Add, End, FinishSequence, Expire → Schedule → (run) → Commit → Deliver
//
// Where MayGoAhead says so, one more Schedule may come before Commit: of a step that begins before
// the tokens of the last one are known. What they make wrong of it, its Commit drops.
class Scheduler {
 public:
  Scheduler(const EngineOptions& options, EngineMetrics* metrics);

  // `submitted` is the Clock::Elapsed of Submit.
  void Add(Request request, RequestSink sink, absl::Duration submitted, const Moment& now);
  void End(RequestId id, absl::Status why, const Moment& now);
  void EndAll(const absl::Status& why, const Moment& now);
  void FinishSequence(RequestId id, int index, const Moment& now);
  // Ends what is past its deadline or time limit.
  void Expire(const Moment& now);

  // The next step; has rows unless idle(). Valid until its Commit. Ahead of another one it may have
  // none, and is then no step.
  const model::StepPlan& Schedule(const Moment& now);
  // Steps that have not been committed: at most 2.
  int num_under_way() const { return static_cast<int>(step_ - num_committed_); }
  // Whether a step may be planned ahead of the one under way.
  bool MayGoAhead();
  // Of the plan of the last Schedule().
  absl::Duration predicted() const { return next_->predicted; }
  void FillMask(std::span<uint32_t> mask) const { next_->plan.FillMask(mask, options_.vocab_size); }
  // What the plan that is under way longest gave, and how long it took. Internal where the result
  // does not fit the plan; nothing is changed then. The scores are moved from, the vectors stay the
  // caller's.
  absl::Status Commit(model::StepResult&& result, const Moment& now, absl::Duration measured);
  // Brings the gauges up to date and calls the sinks of all that have news. No method of this class
  // may be called from a sink.
  void Deliver();

  bool idle() const { return live_.empty(); }
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return num_unfinished_ - num_running(); }
  // Prompt and received tokens of requests that were never admitted.
  int64_t waiting_tokens() const { return waiting_tokens_; }
  // What has left the queue since the last call: tenant and tokens of each request that was
  // admitted, ended or never taken in.
  std::vector<std::pair<std::string, int64_t>> TakeLeftQueue() {
    return std::exchange(left_queue_, {});
  }
  // Still to be computed before every live sequence generates.
  int64_t pending_prompt_tokens() const;
  const BlockPool& pool() const { return pool_; }
  StepCost& cost() { return cost_; }
  // Of the last Commit: rows of prompts in its plan, and tokens drawn.
  int64_t prompt_rows() const { return Committed().prompt_rows; }
  int64_t drawn_tokens() const { return drawn_tokens_; }
  // References that no running sequence holds; 0 between steps.
  int64_t unaccounted_blocks() const;

  // Fills `record` with what the step of the last Commit ran, before Deliver.
  void Describe(StepRecord& record) const;

  // Walks everything; Internal with the first broken invariant. For tests.
  absl::Status CheckInvariants() const;

 private:
  // What one sequence computes in the step.
  struct Chosen {
    Sequence* sequence = nullptr;
    int rows = 0;   // of its tokens; drafts come on top
    int begin = 0;  // the first of them
    int num_drafts = 0;
    size_t first_draft = 0;  // in drafts_
  };
  // A step from its plan to its Commit.
  struct PlannedStep {
    PlanBuilder plan;
    std::vector<Chosen> chosen;
    StepLoad load;
    absl::Duration predicted;
    int64_t prompt_rows = 0;
    std::vector<Sequence*> preempted;  // while it was planned
  };
  PlannedStep& StepOf(uint64_t step) { return steps_[step % steps_.size()]; }
  const PlannedStep& Committed() const { return steps_[num_committed_ % steps_.size()]; }

  // Who holds blocks.
  bool TryAdmit(Sequence& s);
  bool IsBlocked(const Sequence& s) const;
  bool Fits(const Sequence& s) {
    return FitsBeside(s, [](const Sequence&) { return true; });
  }
  bool FitsBeside(const Sequence& s, absl::FunctionRef<bool(const Sequence&)> stays) {
    return admission_.Fits(s, running_, pool_.num_used(), stays);
  }
  const Sequence* FindDonor(const Sequence& s) const;
  void AcquireKnown(Sequence& s, const Sequence* donor);
  void JoinRunning(Sequence& s);
  void LeaveRunning(Sequence& s);
  void Preempt(Sequence& s);
  void ReleaseBlocks(Sequence& s);
  void PublishBlocks(Sequence& s, int end);
  void PreemptForArrivals();
  void PreemptForTenants();
  bool MayPreempt();
  bool MarkYielding(const Sequence& s);
  bool TakePlace(const Sequence& s);
  bool NeedsBlock(const Sequence& s) const;
  void ReserveNextRows();

  // What runs in the step.
  int64_t MostRows() const;
  int RowsThatFit(const Sequence& s, int begin, int wanted) const;
  bool Choose(Sequence& s, int limit);
  void TakeRows(Sequence& s, int rows);
  const Tenant* TenantWithPrompt();
  bool Owes(const Sequence& s) const;
  void SetLimitFor(const Sequence& s);
  absl::Duration PromptLimit(const StepLoad& decodes, const StepLoad& prompts) const;
  bool Precedes(const Sequence& waiting, const Sequence& running) const;
  void ChooseDecodes();
  void AdmitSiblings();
  void ChoosePrompts();
  int ShareFor(const Sequence& s, const Sequence* behind) const;
  void WidenPrompts(size_t first);
  bool MayHaveDrafts(const Sequence& s) const;
  int64_t MostDrafts(const Sequence& s) const;
  int NumDraftsWorth(const Sequence& s, const DraftCost& cost) const;
  void PrepareDrafts();
  void ChooseDrafts(bool is_ahead);
  void PutSinglesFirst();
  void SettleDrafts(const Chosen& chosen);

  // What a step gave.
  absl::Status Check(const PlannedStep& step, const model::StepResult& result) const;
  void TakeSample(const PlannedSample& sample, int32_t token, model::TokenScore score,
                  const Moment& now);
  void NotePrompt(const Chosen& chosen);

  // Ahead of a step under way.
  void Presume();
  void TakeBack(const PlannedSample& sample);

  // Where requests stand.
  void Enqueue(Sequence& s);
  void Dequeue(Sequence& s);
  void BecomeReader(Sequence& s);
  void PromptRead(LiveRequest& r);
  void FinishOne(Sequence& s, const Moment& now);
  bool HandOver(Sequence& from);
  void EndRequest(LiveRequest& r, absl::Status why, const Moment& now);
  void CountAdmitted(LiveRequest& r);
  void TellQueuePositions(const Moment& now);
  void UpdateGauges();

  const EngineOptions options_;
  EngineMetrics& metrics_;
  BlockPool pool_;
  LiveRequests live_;
  StepCost cost_;
  Admission admission_;

  TenantShares tenants_;
  WaitingQueue waiting_;
  // By rank: higher priority, then guaranteed, then older. The last is the first to be preempted.
  std::vector<Sequence*> running_;
  int num_unfinished_ = 0;  // sequences
  int64_t waiting_tokens_ = 0, waiting_rows_ = 0;
  std::vector<std::pair<std::string, int64_t>> left_queue_;
  int num_watched_ = 0;  // requests never admitted that want progress
  absl::Duration positions_told_ = -absl::InfiniteDuration();

  // Steps count from 1: the last one planned, and the last one committed.
  uint64_t step_ = 0, num_committed_ = 0;
  std::array<PlannedStep, 2> steps_;
  PlannedStep* next_;  // the one being planned, or planned last

  // The step being planned.
  absl::Duration limit_;             // of what is chosen now, predicted
  absl::Duration prompt_limit_;      // of steps that read prompts
  const Tenant* reading_ = nullptr;  // whose prompt is read first, where there are others
  bool reader_is_owed_ = false;      // by one that decodes
  int64_t drawn_tokens_ = 0;         // by the last Commit
  double expected_tokens_ = 0;       // that the step gives, drafts among them
  absl::Duration drafting_;          // that guessing took
  int steps_without_drafts_ = 0;     // in a row, that could have had some
  int steps_ahead_ = 0;              // to go before drafts are asked for again …
  int next_steps_ahead_ = 1;         // … and how many the next time there are none
  bool decodes_were_cut_ = false;
  uint64_t num_turns_ = 0;

  // The head of the queue that did not fit, and the number of releases then: while it waits, it is
  // looked at again after the next release. Null once it has left the queue.
  const Sequence* blocked_ = nullptr;
  uint64_t blocked_at_ = 0, num_releases_ = 0;
  // The same of the one for which taking others' blocks did not help.
  const Sequence* unhelped_ = nullptr;
  uint64_t unhelped_at_ = 0;

  // Reused memory.
  std::vector<Sequence*> decodes_, prompts_, finished_;
  std::vector<int32_t> block_tokens_, drafts_, proposed_;
  std::vector<DraftAsk> asks_;
  std::vector<Chosen> others_;
};

}  // namespace continuo::engine
