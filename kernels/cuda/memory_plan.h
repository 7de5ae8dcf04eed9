// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/device.h"

namespace continuo::kernels::cuda {

// What stays free when the KV pool has been taken: for what libraries, graphs and the driver take
// while the worker runs; where that was measured, for kernels that are loaded when they are first
// used.
inline constexpr int64_t kMemoryMargin = int64_t{768} << 20;
inline constexpr int64_t kMeasuredMargin = int64_t{256} << 20;

// OK where each rank's weights and scratch, and the margin, fit into what its device has free.
// ResourceExhausted is one line with the device and these numbers. devices[i] and needs[i] are
// rank i's.
struct RankNeed {
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // activations, logits, workspace
};
absl::Status CheckFits(std::span<const Device> devices, std::span<const RankNeed> needs,
                       int64_t margin_bytes = kMemoryMargin);

// The KV pool. Ranks have equally many blocks, so the device with the least room decides.
struct KvPoolRequest {
  int64_t min_blocks = 1;     // that hold one sequence of the longest context
  int64_t max_blocks = 0;     // that slots can number
  int64_t wanted_blocks = 0;  // 0: as many as there is room for
  int64_t margin_bytes = kMemoryMargin;
};
// devices: free_bytes are those after weights and scratch were taken; block_bytes[i] is a block of
// rank i, 0 where it owns no head. ResourceExhausted is one line with the numbers of the device
// that has too little room.
absl::StatusOr<int64_t> PlanKvBlocks(std::span<const Device> devices,
                                     std::span<const int64_t> block_bytes,
                                     const KvPoolRequest& request);

}  // namespace continuo::kernels::cuda
