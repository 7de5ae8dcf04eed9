// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "services/worker/model/executor.h"

namespace continuo {

// Forwards to another executor, which outlives it. Tests override what they change or watch.
class ForwardingExecutor : public model::Executor {
 public:
  explicit ForwardingExecutor(model::Executor* executor) : executor_(*executor) {}

  absl::Status Start(const model::StepPlan& plan, model::MaskFiller fill_mask) override {
    return executor_.Start(plan, fill_mask);
  }
  absl::StatusOr<model::StepResult> Finish() override { return executor_.Finish(); }
  bool IsAsynchronous() const override { return executor_.IsAsynchronous(); }
  void Recycle(model::StepResult result) override { executor_.Recycle(std::move(result)); }

 private:
  model::Executor& executor_;
};

}  // namespace continuo
