// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/replica.h"
#include "services/worker/model/load/load_options.h"
#include "services/worker/model/load/load_plan.h"

namespace continuo::model {

// Decides how many KV blocks a model gets. On the CPU the options say it; on CUDA devices the
// options or what the devices have free.

// The number of KV blocks that the options ask for; 0 where the devices' memory decides, or where
// it is told later. InvalidArgument unless that many hold one sequence of the whole context.
absl::StatusOr<int> RequestedBlocks(const LoadOptions& options, const LoadPlan& plan,
                                    bool has_device_memory);

// Returns how many slots of states the model gets, before weights are loaded: as the devices'
// memory allows, which is that of FreeBytes; on the CPU as many as the options want.
absl::StatusOr<int> FitStateSlots(const LoadOptions& options, const LoadPlan& plan, int requested,
                                  const kernels::Replica& replica,
                                  std::span<const kernels::Replica::Rank> ranks);

// Returns how many KV blocks the devices have room for, before weights are loaded; `requested` of
// them unless that is 0. ResourceExhausted names the device and the numbers.
absl::StatusOr<int> FitBlocks(const LoadOptions& options, const LoadPlan& plan, int requested,
                              int state_slots, kernels::Replica& replica,
                              std::span<const kernels::Replica::Rank> ranks);

// The same once weights are loaded and the memory of CUDA graphs is known: graph_bytes[rank].
absl::StatusOr<int> FitMeasuredBlocks(const LoadOptions& options, const LoadPlan& plan,
                                      int requested, kernels::Replica& replica,
                                      std::span<const int64_t> graph_bytes);

}  // namespace continuo::model
