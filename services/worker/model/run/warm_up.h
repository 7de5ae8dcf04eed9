// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/model/executor.h"

namespace continuo::model {

struct WarmUpOptions {
  int max_rows = 0;       // of a step
  int max_sequences = 0;  // of a step
  int context_length = 0;
  int block_size = 16;
  int spare_block = 0;  // of the KV cache: what is written there nobody reads
  // Called, by another thread, where a step has not ended for so long, which is more than code for
  // a device that the build does not know takes to be made. It ends the process. Null: nobody is
  // told.
  std::function<void(const absl::Status&)> on_stuck;
  absl::Duration step_limit = absl::Minutes(5);
};

// Runs the largest steps of prompts and of sequences, then twice every shape of steps that decode
// (step_shape.h) whose number of rows `repeats`, so that a device has taken the memory that steps
// take and made its graphs before the first request. Of executors that work apart.
absl::Status WarmUp(Executor& executor, const WarmUpOptions& options,
                    absl::FunctionRef<bool(int)> repeats);

}  // namespace continuo::model
