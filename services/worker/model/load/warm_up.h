// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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
  int spare_block = 0;   // block of the KV cache that no request reads
  bool has_mtp = false;  // plans of the module for multi-token prediction come behind the model's
  bool has_states = false;        // the model has layers with state
  bool reads_states = false;      // steps read states and sample nothing
  std::vector<int32_t> adapters;  // that requests may name from the beginning
  // Called by another thread when a step has run for step_limit, and ends the process. The limit
  // leaves time to compile kernels for a device that the build does not know. Null: no limit.
  std::function<void(const absl::Status&)> on_stuck;
  absl::Duration step_limit = absl::Minutes(5);
};

// Prepares an asynchronous executor for its first request: runs the largest steps, which take their
// memory, with a sample of each kind, then prompts of several sizes and every shape of decode step
// (step_shape.h) twice, which captures its CUDA graph. Devices load a kernel at its first launch,
// so each that requests need is launched here. uses_graphs(rows) says whether steps of so many rows
// have one.
absl::Status WarmUp(Executor& executor, const WarmUpOptions& options,
                    absl::FunctionRef<bool(int)> uses_graphs);

}  // namespace continuo::model
