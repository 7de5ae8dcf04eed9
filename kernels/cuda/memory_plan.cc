// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/memory_plan.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::kernels::cuda {
namespace {

// Formats bytes as "79.10 GiB", and small numbers in bytes.
std::string Size(int64_t bytes) {
  if (bytes < int64_t{1} << 20) return absl::StrCat(bytes, " B");
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (int64_t{1} << 30));
  return text;
}

std::string Room(const DeviceInfo& device) {
  return absl::StrCat("cuda:", device.index, " (", device.name, ") has ", Size(device.free_bytes),
                      " free of ", Size(device.total_bytes));
}

}  // namespace

absl::Status CheckFits(std::span<const DeviceInfo> devices, std::span<const RankNeed> needs,
                       int64_t margin_bytes) {
  CONTINUO_CHECK(devices.size() == needs.size());
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const RankNeed& need = needs[rank];
    CONTINUO_CHECK(need.weight_bytes >= 0 && need.scratch_bytes >= 0 && margin_bytes >= 0);
    // Differences of numbers that are not negative do not overflow.
    if (devices[rank].free_bytes - margin_bytes - need.scratch_bytes >= need.weight_bytes) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory: ", Room(devices[rank]), "; weights take ",
                     Size(need.weight_bytes), ", activations and workspace ",
                     Size(need.scratch_bytes), ", and ", Size(margin_bytes), " stay free"));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PlanKvBlocks(std::span<const DeviceInfo> devices,
                                     std::span<const int64_t> block_bytes,
                                     const KvPoolRequest& request) {
  CONTINUO_CHECK(devices.size() == block_bytes.size());
  CONTINUO_CHECK(request.min_blocks >= 1 && request.max_blocks >= request.min_blocks);
  CONTINUO_CHECK(request.wanted_blocks >= 0 && request.margin_bytes >= 0);
  const int64_t least = request.wanted_blocks == 0 ? request.min_blocks : request.wanted_blocks;
  int64_t blocks = request.wanted_blocks == 0 ? request.max_blocks : request.wanted_blocks;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    CONTINUO_CHECK(block_bytes[rank] >= 0);
    if (block_bytes[rank] == 0) continue;
    const int64_t room = std::max<int64_t>(devices[rank].free_bytes - request.margin_bytes, 0);
    const int64_t fit = room / block_bytes[rank];
    if (fit < least) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "out of memory: ", Room(devices[rank]), " beside weights and activations; ",
          Size(request.margin_bytes), " stay free for graphs and the driver, the rest holds ", fit,
          " KV blocks of ", block_bytes[rank], " B, and ", least,
          request.wanted_blocks == 0 ? " are needed for one sequence of the longest context"
                                     : " were asked for"));
    }
    blocks = std::min(blocks, fit);
  }
  return blocks;
}

}  // namespace continuo::kernels::cuda
