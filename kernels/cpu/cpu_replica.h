// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/replica.h"

namespace continuo::cpu {

// Ranks as threads of one process, in the host's memory.
class CpuReplica : public Replica {
 public:
  // num_ranks is 1, 2, 4 or 8.
  CpuReplica(int num_ranks, std::string isa);

  int num_ranks() const override { return static_cast<int>(communicators_.size()); }
  bool has_device_memory() const override { return false; }
  bool is_exact() const override { return true; }
  absl::StatusOr<Rank> MakeRank(int rank, int num_threads) override;
  absl::StatusOr<int64_t> PlanBlocks(std::span<const RankNeeds> needs,
                                     const BlockRequest& request) override;

 private:
  const std::string isa_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // of ranks that are not made yet
};

}  // namespace continuo::cpu
