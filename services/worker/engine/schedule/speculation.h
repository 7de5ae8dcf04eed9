// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/requests/tenant_shares.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/schedule/residency.h"
#include "services/worker/engine/types/metrics.h"
#include "services/worker/engine/types/options.h"

namespace continuo::engine {

// Speculative decoding: adds draft tokens to a step if it then gives more tokens a second, and
// learns from those that were verified. Does nothing without a drafter. Not thread-safe.
class Speculation {
 public:
  // All arguments outlive this object.
  Speculation(const EngineOptions* options, const StepCost* cost, TenantShares* tenants,
              Residency* residency, EngineMetrics* metrics)
      : options_(*options),
        cost_(*cost),
        tenants_(*tenants),
        residency_(*residency),
        metrics_(*metrics) {}

  // Adds drafts to decodes of `step`, in which everything else has been scheduled. An overlapped
  // step gets none: the tokens to guess from are not known.
  void AddDrafts(PlannedStep& step, bool is_overlapped);
  // Returns the drafts of one entry of the step that was planned last.
  std::span<const int32_t> DraftsOf(const ScheduledTokens& t) const {
    return std::span(drafts_).subspan(t.first_draft, static_cast<size_t>(t.num_drafts));
  }
  // Returns whether the next step may be overlapped: it would get no drafts anyway. While no drafts
  // are found, more and more steps are overlapped before the next attempt.
  bool CanOverlap() const {
    return options_.drafter == nullptr ||
           (overlaps_left_ > 0 && !options_.always_drafts && !options_.drafter->reads_every_step());
  }
  // The samples of `t` are in its answer: learns which drafts were right, and releases the blocks
  // of those that were wrong.
  void OnVerified(const ScheduledTokens& t);
  // The step has been committed, and what it ended has been forgotten.
  void OnCommitted(const PlannedStep& step);
  // The sequence has finished.
  void Forget(const Sequence& s) {
    if (options_.drafter != nullptr) options_.drafter->Forget(s.id);
  }

 private:
  bool MayHaveDrafts(const Sequence& s, const PlannedStep& step) const;
  int64_t MostDrafts(const Sequence& s, const PlannedStep& step) const;
  int NumDraftsWorth(const Sequence& s, const PlannedStep& step, const DraftCost& cost) const;
  void PrepareBatch(const PlannedStep& step);
  void CutDrafts(Sequence& s);
  void ShrinkAsked(const PlannedStep& step);

  const EngineOptions& options_;
  const StepCost& cost_;
  TenantShares& tenants_;
  Residency& residency_;
  EngineMetrics& metrics_;
  int steps_without_drafts_ = 0;  // in a row, among those that could have had some
  int overlaps_left_ = 0;         // steps until drafts are tried again
  int next_overlaps_ = 1;         // the same after the next attempt without drafts

  // State of one step:
  double expected_tokens_ = 0;  // that the step will give, right drafts among them
  absl::Duration drafting_;     // predicted duration of the drafter's work
  std::vector<int32_t> drafts_, proposed_;
  std::vector<DraftAsk> asks_;
  std::vector<ComputedRows> computed_;
};

}  // namespace continuo::engine
