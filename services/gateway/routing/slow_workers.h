// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

namespace continuo::gateway {

struct SlowWorkersOptions {
  // Slow: a step takes this many times the median of the peers', and this long at least. Workers
  // cut their steps at 0.2 s, so one whose steps are long because they do much is not meant.
  double slow_ratio = 4;
  absl::Duration slow_step = absl::Milliseconds(500);
  // Well again: below both of these. In between it stays what it was.
  double well_ratio = 2;
  absl::Duration well_step = absl::Milliseconds(300);
  // How long it must be so before it counts.
  absl::Duration dwell = absl::Seconds(3);
  // What was measured this long ago tells nothing any more.
  absl::Duration max_age = absl::Seconds(10);
};

// Finds the workers that are slow beyond reason beside their peers: a throttled CPU, a neighbour, a
// disk that swaps. A function of what it is told; times are of a clock that never goes back. Not
// thread-safe.
class SlowWorkers {
 public:
  explicit SlowWorkers(const SlowWorkersOptions& options = {}) : options_(options) {}

  // A worker has made `steps` steps since its start and runs so many requests now. Peers are those
  // of the same `group`. True where the worker counts as slow from now on.
  bool Report(const std::string& worker, const std::string& group, uint64_t steps, int64_t running,
              absl::Duration now);
  // The worker's process is another one, or gone.
  void Forget(const std::string& worker);

 private:
  struct Worker {
    std::string group;
    uint64_t steps = 0;
    absl::Duration steps_time;  // when `steps` was last seen to change, or running to begin
    bool running = false;
    bool has_step = false;
    absl::Duration step;           // mean duration of one, recent ones counting more
    absl::Duration measured_time;  // when `step` was last heard of
    bool slow = false;
    bool leaning = false;         // towards the other verdict
    absl::Duration leaning_time;  // since when
  };
  void Measure(Worker& worker, uint64_t steps, int64_t running, absl::Duration now) const;
  // Of the peers that were measured lately; zero where there is none.
  absl::Duration MedianOfPeers(const std::string& worker, absl::Duration now) const;

  const SlowWorkersOptions options_;
  std::map<std::string, Worker> workers_;
};

}  // namespace continuo::gateway
