// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/collectives/nccl_group.h"
#include "kernels/cuda/runtime/device.h"
#include "kernels/replica.h"

namespace continuo::kernels::cuda {

// A rank on each of some CUDA devices, joined by NCCL where there are several.
class CudaReplica : public Replica {
 public:
  // What is wrong with the device's name, the machine or the number of ranks is told as
  // ParseDevices and FindDevices do.
  static absl::StatusOr<std::unique_ptr<CudaReplica>> Make(const ReplicaOptions& options);

  int num_ranks() const override { return static_cast<int>(devices_.size()); }
  bool has_device_memory() const override { return true; }
  bool is_exact() const override { return options_.deterministic; }
  absl::StatusOr<Rank> MakeRank(int rank, int num_threads) override;
  absl::StatusOr<int64_t> PlanBlocks(std::span<const RankNeeds> needs,
                                     const BlockRequest& request) override;
  absl::StatusOr<std::vector<int64_t>> FreeBytes() const override;

 private:
  CudaReplica(std::vector<Device> devices, const ReplicaOptions& options,
              std::shared_ptr<NcclGroup> group)
      : devices_(std::move(devices)), options_(options), group_(std::move(group)) {}

  // Those of the ranks, with what is free of them now.
  absl::StatusOr<std::vector<Device>> DevicesNow() const;

  const std::vector<Device> devices_;  // of the ranks
  const ReplicaOptions options_;
  const std::shared_ptr<NcclGroup> group_;  // null for one rank
};

}  // namespace continuo::kernels::cuda
