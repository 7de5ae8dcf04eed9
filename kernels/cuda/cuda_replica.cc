// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda_replica.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/collectives/nccl_communicator.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/memory_plan.h"
#include "kernels/host/thread_communicator.h"
#include "services/base/check.h"
#include "services/base/clock.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cuda {
namespace {

// The clock outlives every communicator.
const Clock* ProcessClock() {
  static const SystemClock clock;
  return &clock;
}

void AbortProcess(const absl::Status& failure) {
  std::fprintf(stderr, "%s\n", std::string(failure.message()).c_str());
  std::abort();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaReplica>> CudaReplica::Make(const ReplicaOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<int> indices, ParseDevices(options.device.device));
  const int size = static_cast<int>(indices.size());
  if (options.num_ranks != 1 && options.num_ranks != size) {
    return absl::InvalidArgumentError(absl::StrCat("tensor_parallel is ", options.num_ranks,
                                                   ", and device \"", options.device.device,
                                                   "\" names ", size, ": there is a rank on each"));
  }
  ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, FindDevices(indices));
  std::shared_ptr<NcclGroup> group;
  if (size > 1) {
    NcclOptions nccl;
    nccl.tree_order = options.device.deterministic;
    nccl.on_stuck = options.on_stuck != nullptr ? options.on_stuck : AbortProcess;
    nccl.clock = ProcessClock();
    ASSIGN_OR_RETURN(group, NcclGroup::Make(size, std::move(nccl)));
  }
  return std::unique_ptr<CudaReplica>(
      new CudaReplica(std::move(devices), options, std::move(group)));
}

absl::StatusOr<Replica::Rank> CudaReplica::MakeRank(int rank, int num_threads) {
  const DeviceInfo& info = devices_[static_cast<size_t>(rank)];
  DeviceOptions of_rank = options_.device;
  of_rank.num_threads = num_threads;
  absl::StatusOr<std::unique_ptr<CudaDevice>> device =
      CudaDevice::Make({.device = info, .options = of_rank});
  if (!device.ok()) {
    // The other ranks wait for this one.
    if (group_ != nullptr) group_->Fail(device.status());
    return device.status();
  }
  Rank made;
  if (group_ == nullptr) {
    made.communicator = std::move(host::MakeThreadCommunicators(1)[0]);
  } else {
    ASSIGN_OR_RETURN(made.communicator, NcclCommunicator::Make(group_, rank, info.index,
                                                               (*device)->context().stream()));
  }
  made.device = *std::move(device);
  return made;
}

absl::StatusOr<int64_t> CudaReplica::PlanBlocks(std::span<const RankNeeds> needs,
                                                const BlockRequest& request) {
  CONTINUO_CHECK(needs.size() == devices_.size());
  // The devices have their workspaces by now, and NCCL its buffers.
  ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, DevicesNow());
  int64_t margin = kMemoryMargin;
  if (request.is_measured) {
    margin = kMeasuredMargin;
    for (const RankNeeds& need : needs) margin = std::max(margin, kMeasuredMargin + need.graphs);
  }
  std::vector<RankNeed> fixed;
  std::vector<int64_t> block_bytes;
  for (const RankNeeds& need : needs) {
    fixed.push_back({.weight_bytes = need.weights, .scratch_bytes = need.scratch});
    block_bytes.push_back(need.block);
  }
  RETURN_IF_ERROR(CheckFits(devices, fixed, margin));
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].free_bytes -= needs[i].weights + needs[i].scratch;
  }
  return PlanKvBlocks(devices, block_bytes,
                      {.min_blocks = request.min_blocks,
                       .max_blocks = request.max_blocks,
                       .wanted_blocks = request.wanted,
                       .margin_bytes = margin});
}

absl::StatusOr<std::vector<int64_t>> CudaReplica::FreeBytes() const {
  ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, DevicesNow());
  std::vector<int64_t> free;
  for (const DeviceInfo& device : devices) free.push_back(device.free_bytes);
  return free;
}

absl::StatusOr<std::vector<DeviceInfo>> CudaReplica::DevicesNow() const {
  std::vector<int> indices;
  for (const DeviceInfo& device : devices_) indices.push_back(device.index);
  return FindDevices(indices);
}

}  // namespace continuo::kernels::cuda
