// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/device_info.h"

namespace continuo::kernels::cuda {

// Memory that stays free beside the KV pool, for libraries, graphs and the driver. Where these were
// measured it is the smaller amount, for kernels that are loaded at first use.
inline constexpr int64_t kMemoryMargin = int64_t{768} << 20;
inline constexpr int64_t kMeasuredMargin = int64_t{256} << 20;

// CheckFits returns OK if each rank's weights and scratch, and the margin, fit into the free memory
// of its device. ResourceExhausted is one line with the device and these numbers. devices[i] and
// needs[i] belong to rank i.
struct RankNeed {
  int64_t weight_bytes = 0;
  int64_t scratch_bytes = 0;  // activations, logits, workspace
};
absl::Status CheckFits(std::span<const DeviceInfo> devices, std::span<const RankNeed> needs,
                       int64_t margin_bytes = kMemoryMargin);

// The size of the KV pool. Ranks have the same number of blocks, so the device with the least room
// decides.
struct KvPoolRequest {
  int64_t min_blocks = 1;     // they hold one sequence of the longest context
  int64_t max_blocks = 0;     // the most that slots can number
  int64_t wanted_blocks = 0;  // 0: as many as there is room for
  int64_t margin_bytes = kMemoryMargin;
};
// The devices' free_bytes are those after weights and scratch were taken. block_bytes[i] is the
// size of a block of rank i, 0 where it owns no head. ResourceExhausted is one line with the
// numbers of the device that has too little room.
absl::StatusOr<int64_t> PlanKvBlocks(std::span<const DeviceInfo> devices,
                                     std::span<const int64_t> block_bytes,
                                     const KvPoolRequest& request);

}  // namespace continuo::kernels::cuda
