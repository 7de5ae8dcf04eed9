// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace continuo::gateway {

enum class WorkerState {
  kLost,      // its WatchLoad is broken or silent
  kHung,      // its port answers and its health says that nothing is computed
  kLoading,   // alive, not ready
  kServing,   // takes requests
  kDraining,  // alive, takes nothing new: it says so, or it left DNS
};

// For metrics and people: "lost", "hung", "loading", "serving", "draining".
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

// What the gateway knows about one model of one worker. Counts are as last reported.
struct WorkerLoad {
  std::string address;      // host:port; what leases and exclusions name
  std::string worker;       // name, for people
  std::string incarnation;  // differs after every start of the process
  std::string model;
  std::string fingerprint;  // empty: equals nothing
  std::string tokenizer_fingerprint;
  WorkerState state = WorkerState::kLost;
  // While lost: a connection was refused since, so the process is gone rather than cut off.
  bool refused = false;

  int64_t running_requests = 0;
  int64_t waiting_requests = 0;
  int64_t pending_prompt_tokens = 0;
  int64_t used_kv_blocks = 0;
  int64_t total_kv_blocks = 0;
  int64_t block_size_tokens = 0;
  int64_t max_running_requests = 0;
  // Where the address comes from, and that pool's share of new requests (PoolSpec).
  int pool = 0;
  double pool_weight = 1;
  bool slow = false;  // beyond reason, beside its peers

  // When the last report arrived, as Clock::Elapsed tells it.
  absl::Duration report_time = -absl::InfiniteDuration();
};

struct LoadSnapshot {
  std::vector<std::shared_ptr<const WorkerLoad>> workers;
  // Names of all models ever reported, sorted: a model whose workers are all gone is still known.
  std::vector<std::string> known_models;
  // Every listed address has told its model or failed for a while, so a name not in known_models is
  // unknown.
  bool settled = false;
};

// The workers as of now. Readers get an immutable snapshot and never block a writer. Thread-safe.
class LoadView {
 public:
  std::shared_ptr<const LoadSnapshot> Get() const {
    absl::MutexLock lock(&mutex_);
    return current_;
  }
  void Set(LoadSnapshot next) {
    auto fresh = std::make_shared<const LoadSnapshot>(std::move(next));
    absl::MutexLock lock(&mutex_);
    current_.swap(fresh);
  }

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const LoadSnapshot> current_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const LoadSnapshot>();
};

}  // namespace continuo::gateway
