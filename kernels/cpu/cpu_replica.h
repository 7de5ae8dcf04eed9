// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/host/numa.h"
#include "kernels/replica.h"

namespace continuo::kernels::cpu {

// Ranks as threads of one process, in the host's memory.
class CpuReplica : public Replica {
 public:
  // num_ranks is 1, 2, 4 or 8. On a machine of several nodes each rank has its place.
  CpuReplica(int num_ranks, std::string isa, std::span<const host::NumaNode> nodes);

  int num_ranks() const override { return static_cast<int>(communicators_.size()); }
  bool has_device_memory() const override { return false; }
  bool is_exact() const override { return true; }
  std::string placement() const override;
  absl::StatusOr<Rank> MakeRank(int rank, int num_threads) override;
  absl::StatusOr<int64_t> PlanBlocks(std::span<const RankNeeds> needs,
                                     const BlockRequest& request) override;

 private:
  const std::string isa_;
  const std::vector<host::Place> places_;                     // of the ranks
  std::vector<std::unique_ptr<Communicator>> communicators_;  // of ranks that are not made yet
};

}  // namespace continuo::kernels::cpu
