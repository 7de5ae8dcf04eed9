// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/simulate/event/event_loop.h"
#include "services/simulate/worker/simulated_worker.h"

namespace continuo::simulate {

// The number of pods in each phase.
struct PodCounts {
  int starting = 0, serving = 0, draining = 0;
  // The pods that count as replicas.
  int replicas() const { return starting + serving; }
  bool operator==(const PodCounts&) const = default;
};

// The pods of the workers, as a Deployment of Kubernetes keeps them. Each worker is the place of
// one pod; a pod that goes leaves its place, and its address, to a later one. Not thread-safe.
class PodSet {
 public:
  struct Options {
    // From the request for a pod until its worker serves: a node, an image, a model.
    absl::Duration start = absl::Seconds(60);
    // A pod that is taken away has this long for its streams.
    absl::Duration drain_grace = absl::Seconds(5);
  };

  // Everything passed outlives the set; `on_change` is
  // called after each change of the phases, and `on_listed` when a worker is listed or no longer.
  PodSet(const Options& options, const std::vector<std::unique_ptr<SimulatedWorker>>* workers,
         EventLoop* loop, std::function<void()> on_change, std::function<void()> on_listed)
      : options_(options),
        workers_(*workers),
        loop_(*loop),
        on_change_(std::move(on_change)),
        on_listed_(std::move(on_listed)) {}

  // The first so many workers have been serving for a while.
  void Begin(int replicas);
  // Asks for that many replicas. Pods that are too many go in the order of a ReplicaSet: those that
  // start, then those whose process is down, then the youngest.
  void Scale(int replicas);
  // The process of the worker has ended. Called at once, before anybody else hears of it.
  void OnExit(int worker);

  // Gateways know the address of the worker. A pod that drains is listed until its process ends.
  bool IsListed(int worker) const;
  // The worker is to have a process: its pod serves.
  bool IsServing(int worker) const { return pod(worker).phase == Phase::kServing; }

  // Numbers the pods in the place of the worker from 1; the last one's.
  uint64_t pod_number(int worker) const { return pod(worker).number; }

  int wanted() const { return wanted_; }
  PodCounts Count() const;
  // The time that pods have existed, in all, and the time that the worker's had a process that
  // served or drained.
  absl::Duration PodTime() const;
  absl::Duration ServingTime(int worker) const;

  // Checks that as many pods exist as are wanted, and that processes are where pods have them.
  absl::Status CheckInvariants() const;

 private:
  enum class Phase { kAbsent, kStarting, kServing, kDraining };
  struct Pod {
    Phase phase = Phase::kAbsent;
    uint64_t number = 0;                     // of the pod in this place, from 1
    absl::Duration since, ready;             // the pod exists, and serves, since then
    absl::Duration past_pods, past_serving;  // of pods that are gone
  };

  const Pod& pod(int worker) const { return pods_[static_cast<size_t>(worker)]; }
  void Add();
  void TakeAway();
  void Remove(int worker);

  const Options options_;
  const std::vector<std::unique_ptr<SimulatedWorker>>& workers_;
  EventLoop& loop_;
  const std::function<void()> on_change_, on_listed_;
  std::vector<Pod> pods_;
  int wanted_ = 0;
};

}  // namespace continuo::simulate
