// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "services/cli/bench/workload.h"
#include "services/simulate/load.h"

namespace continuo::cli {

// The requests that `continuo bench` would send with the same flags, for a simulation. Not
// thread-safe.
class WorkloadLoad : public simulate::Load {
 public:
  // Ends after `requests`, 0 being no limit, or with the first arrival after `duration`.
  WorkloadLoad(WorkloadOptions options, uint64_t requests, absl::Duration duration)
      : workload_(std::move(options)), requests_(requests), duration_(duration) {}

  std::optional<simulate::PlannedRequest> Next() override {
    if (requests_ > 0 && num_sent_ == requests_) return std::nullopt;
    const PlannedRequest next = workload_.Next();
    if (next.arrival > duration_) return std::nullopt;
    ++num_sent_;
    return simulate::PlannedRequest{.index = next.index,
                                    .arrival = next.arrival,
                                    .prompt_tokens = next.prompt_tokens,
                                    .output_tokens = next.output_tokens};
  }
  std::vector<uint32_t> PromptIds(const simulate::PlannedRequest& request) override {
    return workload_.PromptIds({.index = request.index, .prompt_tokens = request.prompt_tokens});
  }

 private:
  Workload workload_;
  const uint64_t requests_;
  const absl::Duration duration_;
  uint64_t num_sent_ = 0;
};

}  // namespace continuo::cli
