// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/schedule/residency.h"
#include "services/worker/engine/types/options.h"

namespace continuo::engine {

// Decides which tokens run in a step: decodes first, then siblings whose prompt has just been
// prefilled, then prompts, until the budgets of tokens and predicted time are used up. Admits from
// the queue on the way. Not thread-safe.
class StepFiller {
 public:
  // All arguments outlive this object.
  StepFiller(const EngineOptions* options, const StepCost* cost, RequestBook* book,
             Residency* residency)
      : options_(*options), cost_(*cost), book_(*book), residency_(*residency) {}

  // Schedules tokens into the empty `step`. If nothing can run because prompts hold all blocks, it
  // preempts until something can; not if `is_overlapped`, since the step in flight may release
  // blocks.
  void Fill(PlannedStep& step, bool is_overlapped);

 private:
  const Tenant* TenantWithPrompt() const;
  bool Yields(const Sequence& s) const;
  void SetLimitFor(const Sequence& s);
  absl::Duration PromptLimit(const StepLoad& decodes, const StepLoad& prompts) const;
  bool Precedes(const Sequence& waiting, const Sequence& running) const;
  void ScheduleDecodes();
  void AdmitSiblings();
  void SchedulePrompts();
  int ShareFor(const Sequence& s, const Sequence* behind) const;
  void WidenPrompts(size_t first);
  int TokensThatFit(const Sequence& s, int begin, int wanted) const;
  bool Schedule(Sequence& s, int limit);
  void Take(Sequence& s, int num_tokens);

  const EngineOptions& options_;
  const StepCost& cost_;
  RequestBook& book_;
  Residency& residency_;
  bool decodes_were_cut_ = false;  // the last step did not have room for all of them

  // State of one Fill:
  PlannedStep* step_ = nullptr;
  absl::Duration limit_;         // predicted duration up to which tokens are added now
  absl::Duration prompt_limit_;  // the same for a step that prefills
  bool decodes_yield_ = false;   // to the prompt of another tenant
  std::vector<Sequence*> decodes_, prompts_;
};

}  // namespace continuo::engine
