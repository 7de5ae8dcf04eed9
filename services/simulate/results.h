// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/simulate/latency_histogram.h"
#include "services/simulate/scaling/pod_set.h"

namespace continuo::simulate {

// The workers of an autoscaled pool from a time on.
struct ScalePoint {
  absl::Duration time;  // since the first request
  int wanted = 0;       // the replicas that the autoscaler asks for
  PodCounts pods;
};

// The measurements of one simulation. Shares are of all workers and of the time that they are
// there.
struct Results {
  int workers = 0, gateways = 0;         // at the begin
  absl::Duration worker_time;            // that workers were there or started, in all
  std::vector<ScalePoint> scaling = {};  // empty without an autoscaler; the first is at 0
  absl::Duration duration;               // from the first request to the last answer
  uint64_t sent = 0, ok = 0;
  uint64_t rejected = 0;                   // ended with RESOURCE_EXHAUSTED
  uint64_t failed = 0;                     // ended with any other error
  std::map<std::string, uint64_t> errors;  // by code and message
  uint64_t prompt_tokens = 0, cached_prompt_tokens = 0, output_tokens = 0;
  LatencyHistogram time_to_first_token, inter_token, whole;

  uint64_t migrations = 0, reconnects = 0, preemptions = 0, steps = 0;
  uint64_t faults = 0;  // that happened
  double busy = 0;      // share of the time in steps
  double kv_used = 0;   // share of the KV blocks that sequences hold
  double running = 0;   // sequences in a worker's batch, on average
  double busiest = 0;   // the most busy worker's share of the time
  uint64_t events = 0;  // that the simulation has handled
  uint64_t digest = 0;  // of all answers and their times: equal for equal runs
};

}  // namespace continuo::simulate
