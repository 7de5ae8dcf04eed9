// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace continuo::gateway {

enum class WorkerState {
  kLost,      // its WatchLoad stream is broken or silent
  kHung,      // its port answers, but its health says that it computes nothing
  kLoading,   // it is alive and not ready
  kServing,   // it takes requests
  kDraining,  // it is alive and takes nothing new: it says so, or it left DNS
};

// The name of a state in metrics and logs: "lost", "hung", "loading", "serving", "draining".
constexpr std::string_view WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kLost:
      break;
    case WorkerState::kHung:
      return "hung";
    case WorkerState::kLoading:
      return "loading";
    case WorkerState::kServing:
      return "serving";
    case WorkerState::kDraining:
      return "draining";
  }
  return "lost";
}

// The state and load of one model of one worker. Counts are those of the last report.
struct WorkerLoad {
  std::string address;      // host:port; names the worker in leases and exclusions
  std::string worker;       // name, for people
  std::string incarnation;  // changes with every start of the process
  std::string model;
  std::string parent;       // of a LoRA adapter: the model that it adapts; else empty
  std::string fingerprint;  // an empty one equals no other
  std::string tokenizer_fingerprint;
  WorkerState state = WorkerState::kLost;
  // While lost: a connection was refused since, so the process has exited rather than been cut off.
  bool refused = false;

  int64_t running_requests = 0;
  int64_t waiting_requests = 0;
  int64_t pending_prompt_tokens = 0;
  int64_t used_kv_blocks = 0;
  int64_t total_kv_blocks = 0;
  int64_t used_state_slots = 0;
  int64_t total_state_slots = 0;  // 0: the model has no recurrent states
  int64_t block_size_tokens = 0;
  int64_t max_running_requests = 0;
  // The pool that lists the address, and that pool's share of new requests (PoolSpec).
  int pool = 0;
  double pool_weight = 1;
  bool slow = false;  // see SlowWorkers
  // Of a LoRA adapter: it is not in the worker's memory, and the first request for it waits.
  bool on_demand = false;

  // The last report arrived at this time, by Clock::Elapsed.
  absl::Duration report_time = -absl::InfiniteDuration();
};

}  // namespace continuo::gateway
