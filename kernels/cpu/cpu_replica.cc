// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_replica.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/host/thread_communicator.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::kernels::cpu {

CpuReplica::CpuReplica(int num_ranks, std::string isa, std::span<const host::NumaNode> nodes)
    : isa_(std::move(isa)),
      places_(host::PlaceRanks(nodes, num_ranks)),
      communicators_(host::MakeThreadCommunicators(num_ranks)) {}

std::string CpuReplica::placement() const {
  if (places_[0].nodes.empty()) return "";
  return absl::StrJoin(places_, "; ", [](std::string* out, const host::Place& place) {
    absl::StrAppend(out, "NUMA node ", absl::StrJoin(place.nodes, ","));
  });
}

absl::StatusOr<Replica::Rank> CpuReplica::MakeRank(int rank, int num_threads) {
  ASSIGN_OR_RETURN(const KernelTable* kernels, PickKernels(isa_));
  return Rank{.device = std::make_unique<CpuDevice>(*kernels, num_threads,
                                                    places_[static_cast<size_t>(rank)]),
              .communicator = std::move(communicators_[static_cast<size_t>(rank)])};
}

absl::StatusOr<int64_t> CpuReplica::PlanBlocks(std::span<const RankNeeds>, const BlockRequest&) {
  CONTINUO_CHECK(!"the host's memory is not planned here");
}

}  // namespace continuo::kernels::cpu
