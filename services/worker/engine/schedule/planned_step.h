// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/engine/requests/tenant_shares.h"
#include "services/worker/engine/schedule/plan_builder.h"
#include "services/worker/engine/types/step_record.h"

namespace continuo::engine {

// The tokens that one sequence computes in a step: `num_tokens` of its own, from position `begin`
// on, then drafts.
struct ScheduledTokens {
  Sequence* sequence = nullptr;
  int num_tokens = 0;
  int begin = 0;
  int num_drafts = 0;
  size_t first_draft = 0;  // index into the drafts of the step
};

// A step from its planning to its commit. The parts of the scheduler pass it on and fill it in.
struct PlannedStep {
  uint64_t number = 0;  // steps count from 1
  PlanBuilder plan;
  std::vector<ScheduledTokens> scheduled;
  StepLoad load;           // of all that is scheduled so far
  int64_t max_tokens = 0;  // the budget; `target_step` is the other one
  // The tenant whose prompt is prefilled first, if more than one has live requests, else null.
  // Sequences of tenants that it has a deficit against yield to it.
  const Tenant* prefill_tenant = nullptr;
  absl::Duration predicted;
  int64_t prompt_tokens = 0;          // scheduled ones
  std::vector<Sequence*> preempted;   // while the step was planned
  std::vector<ScheduledTokens> rest;  // reused memory of OrderDecodesFirst

  // Makes it the empty step `step_number`; keeps its memory.
  void Clear(uint64_t step_number, int64_t token_budget);
};

// Devices compute attention of sequences with one token differently from that of longer ones, and
// expect the former first. Keeps the order otherwise.
void OrderDecodesFirst(PlannedStep& step);

// Fills the number and the sequences of `record` with what `step` ran, once it is committed.
void Describe(const PlannedStep& step, StepRecord& record);

}  // namespace continuo::engine
