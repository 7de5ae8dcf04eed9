// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/cli/bench/workload_flags.h"
#include "services/common/flags.h"

namespace continuo::cli {

// The flags of `continuo simulate`, with their defaults.
struct SimulateFlags : WorkloadFlags {
  std::optional<uint32_t> workers;  // 1, or the autoscaler's minimum
  uint32_t gateways = 1;
  std::string autoscale;  // MIN..MAX; empty: the fleet keeps its size
  std::string autoscale_by = "hpa";
  double kv_occupancy = 0.7;
  int64_t queued_tokens = 8192;
  double token_time = 0.5;
  absl::Duration scale_down = absl::Seconds(300);
  absl::Duration worker_start = absl::Seconds(60);
  absl::Duration drain_grace = absl::Seconds(5);
  std::string cost;  // A path; empty takes an example.
  std::string routing_policy = "least_loaded";
  uint32_t concurrency = 16;
  std::optional<uint64_t> requests;
  absl::Duration duration = absl::InfiniteDuration();
  uint32_t max_tokens = 0;
  absl::Duration rolling_update;  // 0: none
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration network_delay = absl::Microseconds(200);
  uint32_t subset_size = 200;
  int64_t max_open_requests = 20000;
  int64_t max_queued_tokens = 1 << 22;
  std::string slo;            // The argument of ParseSlo; empty: none.
  std::string find = "none";  // Or "workers".
  uint32_t max_workers = 1024;
  std::string svg;   // A path, with --find or --autoscale.
  std::string json;  // A path; "-" prints the JSON instead of the table.
};

void AddSimulateFlags(common::Flags& flags, SimulateFlags* values);

}  // namespace continuo::cli
