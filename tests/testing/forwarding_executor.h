// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "services/worker/model/executor.h"

namespace continuo {

// Another executor, for tests that change or watch some of what it does. It outlives this one.
class ForwardingExecutor : public Executor {
 public:
  explicit ForwardingExecutor(Executor* executor) : executor_(*executor) {}

  absl::Status Start(const StepPlan& plan, MaskFiller fill_mask) override {
    return executor_.Start(plan, fill_mask);
  }
  absl::StatusOr<StepResult> Finish() override { return executor_.Finish(); }
  bool WorksApart() const override { return executor_.WorksApart(); }
  void Recycle(StepResult result) override { executor_.Recycle(std::move(result)); }

 private:
  Executor& executor_;
};

}  // namespace continuo
