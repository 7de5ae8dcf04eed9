// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/slow_workers.h"

#include <algorithm>

namespace continuo::gateway {
namespace {

// The weight of the newest measurement.
constexpr double kNewest = 0.3;

}  // namespace

void SlowWorkers::Measure(Worker& worker, uint64_t steps, int64_t running,
                          absl::Duration now) const {
  const bool was_running = worker.running;
  worker.running = running > 0;
  if (steps > worker.steps && was_running) {
    const absl::Duration sample =
        (now - worker.steps_time) / static_cast<double>(steps - worker.steps);
    worker.step = worker.has_step ? worker.step + (sample - worker.step) * kNewest : sample;
    worker.has_step = true;
    worker.measured_time = now;
  } else if (steps == worker.steps && was_running && worker.running) {
    // The current step takes at least this long.
    if (const absl::Duration sample = now - worker.steps_time; sample > worker.step) {
      worker.step = sample;
      worker.has_step = true;
      worker.measured_time = now;
    }
    return;
  }
  worker.steps = steps;
  worker.steps_time = now;
}

absl::Duration SlowWorkers::MedianOfPeers(const Worker& worker, absl::Duration now) {
  Group& group = groups_[worker.group];
  if (now - group.collect_time >= options_.collect_interval) {
    group.collect_time = now;
    group.steps.clear();
    for (auto& [name, peer] : workers_) {
      if (peer.group != worker.group || !peer.has_step) continue;
      if (now - peer.measured_time > options_.max_age) continue;
      group.steps.push_back(peer.step);
      peer.collected_step = peer.step;
      peer.collect_time = now;
    }
    std::ranges::sort(group.steps);
  }
  // The worker's own step is left out.
  const bool is_in = worker.collect_time == group.collect_time;
  const size_t num_peers = group.steps.size() - (is_in ? 1 : 0);
  if (num_peers == 0) return absl::ZeroDuration();
  size_t middle = num_peers / 2;
  if (is_in && worker.collected_step <= group.steps[middle]) ++middle;
  return group.steps[middle];
}

bool SlowWorkers::Report(const std::string& name, const std::string& group, uint64_t steps,
                         int64_t running, absl::Duration now) {
  const auto [at, is_new] = workers_.try_emplace(name);
  Worker& worker = at->second;
  if (worker.group != group) {
    worker.group = group;
    worker.collect_time = -absl::InfiniteDuration();
  }
  if (is_new) {
    worker.steps = steps;
    worker.steps_time = now;
    worker.running = running > 0;
    return false;
  }
  Measure(worker, steps, running, now);
  if (!worker.has_step || now - worker.measured_time > options_.max_age) {
    worker.has_step = worker.slow = worker.has_pending_verdict = false;  // try it again
    return false;
  }
  // Every report of every worker comes here, and there may be thousands of peers, so their median
  // is asked for only if the verdict depends on it.
  bool is_opposite = false;
  if (worker.slow) {
    const absl::Duration median = MedianOfPeers(worker, now);
    is_opposite = worker.step < options_.well_step || worker.step < median * options_.well_ratio ||
                  median == absl::ZeroDuration();
  } else if (worker.step > options_.slow_step) {
    const absl::Duration median = MedianOfPeers(worker, now);
    is_opposite = median > absl::ZeroDuration() && worker.step > median * options_.slow_ratio;
  }
  if (!is_opposite) {
    worker.has_pending_verdict = false;
  } else if (!worker.has_pending_verdict) {
    worker.has_pending_verdict = true;
    worker.pending_since = now;
  } else if (now - worker.pending_since >= options_.hysteresis) {
    worker.slow = !worker.slow;
    worker.has_pending_verdict = false;
  }
  return worker.slow;
}

void SlowWorkers::Forget(const std::string& worker) { workers_.erase(worker); }

}  // namespace continuo::gateway
