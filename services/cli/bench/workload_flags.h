// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/cli/bench/workload.h"
#include "services/common/flags.h"

namespace continuo::cli {

// The flags that describe a workload, with their defaults; `bench` and `simulate` share them.
struct WorkloadFlags {
  std::string prompt_tokens = "128", output_tokens = "128";
  double rate = 0;  // Of the open loop; 0 is a closed loop.
  std::string trace;
  double trace_speed = 1;
  uint32_t shared_prefix_tokens = 0, num_prefixes = 1;
  uint64_t seed = 0;
};

void AddWorkloadFlags(common::Flags& flags, WorkloadFlags* values);

// The workload, with its trace read; the vocabulary and the context are yet to be set.
// INVALID_ARGUMENT names what is wrong.
absl::StatusOr<WorkloadOptions> MakeWorkloadOptions(const WorkloadFlags& flags);

}  // namespace continuo::cli
