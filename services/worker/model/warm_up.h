// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/worker/model/executor.h"

namespace continuo {

struct WarmUpOptions {
  int max_rows = 0;       // of a step
  int max_sequences = 0;  // of a step
  int context_length = 0;
  int block_size = 16;
  int spare_block = 0;  // of the KV cache: what is written there nobody reads
};

// Runs the largest steps of prompts and of sequences, then twice every shape of steps that decode
// (step_shape.h) whose number of rows `repeats`, so that a device has taken the memory that steps
// take and made its graphs before the first request. Of executors that work apart.
absl::Status WarmUp(Executor& executor, const WarmUpOptions& options,
                    absl::FunctionRef<bool(int)> repeats);

}  // namespace continuo
