// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/engine/types/options.h"
#include "services/worker/model/step_plan.h"

namespace continuo::profile {

// The duration of a step as a function of its work, as engine::StepCost fits it, but for two
// things: a decode reads keys and values for itself alone, which costs more than where the tokens
// of a prompt share them; and where few rows share the reading of the weights, a further row costs
// less than where many keep the processor busy. All in seconds.
struct StepTime {
  static constexpr std::array<int64_t, 3> kSampleKnees = {4, 16, 64};

  double fixed = 0;
  double per_token = 0;
  double per_attended_token = 0;
  double per_decode_attended_token = 0;  // of decode_attention, added to per_attended_token
  double per_sample = 0;
  // For each sample beyond a knee, besides per_sample and the knees before it.
  std::array<double, kSampleKnees.size()> per_sample_over = {};

  absl::Duration Of(const engine::StepLoad& load) const;
};

// Returns the work of a plan.
engine::StepLoad LoadOf(const model::StepPlan& plan);

// One kind of worker: how fast it is and what fits into it. A value.
struct WorkerProfile {
  std::string name;  // for people
  StepTime step;
  // The limits of the engine; its vocabulary, hash key and drafter are not used.
  engine::EngineOptions engine;
  // The device computes while the host plans the next step.
  bool is_asynchronous = false;
  int max_context_tokens = 131072;  // longer requests are cut to it
};

// A worker with one H100 and a model of 8 billion parameters in bf16: a round example for those who
// have no file, not a measurement.
WorkerProfile ExampleProfile();

// Reads a file of --cost. INVALID_ARGUMENT names the member and its range.
absl::StatusOr<WorkerProfile> ParseProfile(std::string_view json);

// Writes a file of --cost, with all members. What is beyond the range of a member is written as the
// end of it.
std::string FormatProfile(const WorkerProfile& profile);

}  // namespace continuo::profile
