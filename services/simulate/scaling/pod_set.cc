// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/scaling/pod_set.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::simulate {

void PodSet::Begin(int replicas) {
  pods_.resize(workers_.size());
  wanted_ = replicas;
  for (int i = 0; i < replicas; ++i) {
    pods_[static_cast<size_t>(i)] = {
        .phase = Phase::kServing, .number = 1, .since = loop_.Elapsed(), .ready = loop_.Elapsed()};
  }
  on_change_();
}

void PodSet::Scale(int replicas) {
  CONTINUO_CHECK(replicas >= 0 && replicas <= static_cast<int>(pods_.size()));
  if (replicas == wanted_) return;
  const int before = std::exchange(wanted_, replicas);
  for (int i = before; i < replicas; ++i) Add();
  // A pod that waits for a place goes first: nothing has to be taken away for it.
  while (Count().replicas() > replicas) TakeAway();
  on_change_();
}

// Waits for a place where all are taken by pods that drain (OnExit).
void PodSet::Add() {
  const auto at = std::ranges::find(pods_, Phase::kAbsent, &Pod::phase);
  if (at == pods_.end()) return;
  at->phase = Phase::kStarting;
  at->since = loop_.Elapsed();
  const uint64_t number = ++at->number;
  loop_.After(options_.start, [this, at, number] {
    if (at->phase != Phase::kStarting || at->number != number) return;
    at->phase = Phase::kServing;
    at->ready = loop_.Elapsed();
    workers_[static_cast<size_t>(at - pods_.begin())]->Restart();
    on_listed_();
    on_change_();
  });
}

void PodSet::TakeAway() {
  const auto rank = [this](int i) {
    const Pod& pod = pods_[static_cast<size_t>(i)];
    const bool is_up = workers_[static_cast<size_t>(i)]->is_running();
    return std::tuple(pod.phase == Phase::kServing, is_up, -pod.ready, -pod.since, -i);
  };
  int first = -1;
  for (int i = 0; i < static_cast<int>(pods_.size()); ++i) {
    const Phase phase = pod(i).phase;
    if (phase != Phase::kStarting && phase != Phase::kServing) continue;
    if (first < 0 || rank(i) < rank(first)) first = i;
  }
  SimulatedWorker& worker = *workers_[static_cast<size_t>(first)];
  if (pod(first).phase == Phase::kStarting || !worker.is_running()) return Remove(first);
  pods_[static_cast<size_t>(first)].phase = Phase::kDraining;
  worker.Drain(options_.drain_grace);
}

void PodSet::OnExit(int worker) {
  if (pod(worker).phase != Phase::kDraining) return;
  Remove(worker);
  if (Count().replicas() < wanted_) Add();
  on_change_();
}

void PodSet::Remove(int worker) {
  Pod& gone = pods_[static_cast<size_t>(worker)];
  const absl::Duration now = loop_.Elapsed();
  gone.past_pods += now - gone.since;
  const bool was_listed = IsListed(worker);
  if (was_listed) gone.past_serving += now - gone.ready;
  gone.phase = Phase::kAbsent;
  if (was_listed) on_listed_();
}

bool PodSet::IsListed(int worker) const {
  return pod(worker).phase == Phase::kServing || pod(worker).phase == Phase::kDraining;
}

PodCounts PodSet::Count() const {
  PodCounts counts;
  for (const Pod& pod : pods_) {
    counts.starting += pod.phase == Phase::kStarting;
    counts.serving += pod.phase == Phase::kServing;
    counts.draining += pod.phase == Phase::kDraining;
  }
  return counts;
}

absl::Duration PodSet::PodTime() const {
  absl::Duration sum;
  for (const Pod& pod : pods_) {
    sum += pod.past_pods;
    if (pod.phase != Phase::kAbsent) sum += loop_.Elapsed() - pod.since;
  }
  return sum;
}

absl::Duration PodSet::ServingTime(int worker) const {
  const Pod& pod = this->pod(worker);
  return pod.past_serving + (IsListed(worker) ? loop_.Elapsed() - pod.ready : absl::ZeroDuration());
}

absl::Status PodSet::CheckInvariants() const {
  const PodCounts counts = Count();
  const bool is_full = counts.replicas() + counts.draining == static_cast<int>(pods_.size());
  if (counts.replicas() > wanted_ || (counts.replicas() < wanted_ && !is_full)) {
    return absl::InternalError(absl::StrCat(counts.starting, " pods start and ", counts.serving,
                                            " serve, ", wanted_, " are wanted"));
  }
  for (size_t i = 0; i < pods_.size(); ++i) {
    const Phase phase = pods_[i].phase;
    const bool runs = workers_[i]->is_running();
    if (runs && (phase == Phase::kAbsent || phase == Phase::kStarting)) {
      return absl::InternalError(absl::StrCat("worker ", i, " runs without a pod"));
    }
    if (phase == Phase::kDraining && !(runs && workers_[i]->is_draining())) {
      return absl::InternalError(absl::StrCat("worker ", i, " is to drain and does not"));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::simulate
