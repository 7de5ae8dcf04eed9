// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/collectives/nccl_group.h"
#include "kernels/cuda/runtime/device_info.h"
#include "kernels/replica.h"

namespace continuo::kernels::cuda {

// One rank on each of some CUDA devices. Several ranks communicate by NCCL.
class CudaReplica : public Replica {
 public:
  // Errors are those of ParseDevices and FindDevices; InvalidArgument also where num_ranks does not
  // fit the number of devices.
  static absl::StatusOr<std::unique_ptr<CudaReplica>> Make(const ReplicaOptions& options);

  int num_ranks() const override { return static_cast<int>(devices_.size()); }
  bool has_device_memory() const override { return true; }
  bool is_exact() const override { return options_.device.deterministic; }
  absl::StatusOr<Rank> MakeRank(int rank, int num_threads) override;
  absl::StatusOr<int64_t> PlanBlocks(std::span<const RankNeeds> needs,
                                     const BlockRequest& request) override;
  absl::StatusOr<std::vector<int64_t>> FreeBytes() const override;

 private:
  CudaReplica(std::vector<DeviceInfo> devices, const ReplicaOptions& options,
              std::shared_ptr<NcclGroup> group)
      : devices_(std::move(devices)), options_(options), group_(std::move(group)) {}

  // The ranks' devices, with their free memory of now.
  absl::StatusOr<std::vector<DeviceInfo>> DevicesNow() const;

  const std::vector<DeviceInfo> devices_;  // by rank
  const ReplicaOptions options_;
  const std::shared_ptr<NcclGroup> group_;  // null for one rank
};

}  // namespace continuo::kernels::cuda
