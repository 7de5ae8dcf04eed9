// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace continuo::gateway {

struct SlowWorkersOptions {
  // A worker is slow if a step takes this many times the median of its peers and at least this
  // long. Workers cut their steps at 0.2 s, so a worker whose steps do much is not meant.
  double slow_ratio = 4;
  absl::Duration slow_step = absl::Milliseconds(500);
  // A slow worker is well again below one of these. In between it keeps its verdict.
  double well_ratio = 2;
  absl::Duration well_step = absl::Milliseconds(300);
  // A new verdict must hold so long before it counts.
  absl::Duration hysteresis = absl::Seconds(3);
  // Measurements that are older than this are ignored.
  absl::Duration max_age = absl::Seconds(10);
  // The steps of a group are compared with for so long before they are collected anew, which looks
  // at each worker.
  absl::Duration collect_interval = absl::Milliseconds(500);
};

// Finds the workers that are much slower than their peers, because of a throttled CPU, a neighbour
// or a disk that swaps. A function of the reports; times are those of a clock that never goes back.
// Not thread-safe.
class SlowWorkers {
 public:
  explicit SlowWorkers(const SlowWorkersOptions& options = {}) : options_(options) {}

  // Reports that a worker has made `steps` steps since its start and now runs `running` requests.
  // Its peers are the workers of the same `group`. Returns true if the worker counts as slow from
  // now on.
  bool Report(const std::string& worker, const std::string& group, uint64_t steps, int64_t running,
              absl::Duration now);
  // Forgets a worker whose process has exited or been replaced.
  void Forget(const std::string& worker);

 private:
  struct Worker {
    std::string group;
    uint64_t steps = 0;
    absl::Duration steps_time;  // when `steps` was last seen to change, or running to begin
    bool running = false;
    bool has_step = false;
    absl::Duration step;            // mean duration of a step; recent ones count more
    absl::Duration measured_time;   // when `step` was last measured
    absl::Duration collected_step;  // `step` when it was last collected for its group
    absl::Duration collect_time = -absl::InfiniteDuration();  // and when that was
    bool slow = false;
    bool has_pending_verdict = false;  // the opposite of `slow`
    absl::Duration pending_since;
  };
  // The steps of a group's workers that were measured lately.
  struct Group {
    std::vector<absl::Duration> steps;  // sorted
    absl::Duration collect_time = -absl::InfiniteDuration();
  };
  void Measure(Worker& worker, uint64_t steps, int64_t running, absl::Duration now) const;
  // The median of the peers' step times that were measured lately; zero if there are none.
  absl::Duration MedianOfPeers(const Worker& worker, absl::Duration now);

  const SlowWorkersOptions options_;
  absl::flat_hash_map<std::string, Worker> workers_;
  absl::flat_hash_map<std::string, Group> groups_;  // of which a median was asked for
};

}  // namespace continuo::gateway
