// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/engine/estimate/step_cost.h"
#include "services/worker/profile/cost_fit.h"

namespace continuo::cli {

// Learns from a worker's steps what a step costs, for `continuo simulate --cost`. Not thread-safe.
class CostRecorder {
 public:
  void Take(const v1::WatchStepsResponse& response);
  void Take(const v1::WatchLoadResponse& load) { load_ = load; }

  // The file. FAILED_PRECONDITION if too few steps were seen, or no load.
  absl::StatusOr<std::string> Profile() const;
  int64_t num_steps() const { return fit_.num_steps(); }
  // The relative error of the fit, as a root of mean squares.
  double Error() const;

 private:
  // A step whose successor is yet to come.
  struct Pending {
    uint64_t number = 0;
    absl::Time start;
    absl::Duration took;
    engine::StepLoad work;
  };

  std::optional<v1::WatchLoadResponse> load_;
  std::optional<Pending> pending_;
  profile::CostFit fit_;
};

}  // namespace continuo::cli
