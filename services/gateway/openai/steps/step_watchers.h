// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/openai/steps/step_queue.h"

namespace continuo::gateway::openai {

// All who watch steps through one gateway, and their limit: one tenant gets at most four fifths of
// the places that others leave free, but at least one, so that a newcomer finds a place.
// Thread-safe.
class StepWatchers {
 public:
  // A place, given back by the destructor. The StepWatchers outlives it.
  class Place;

  explicit StepWatchers(int max_watchers) : max_watchers_(max_watchers) {}

  // RESOURCE_EXHAUSTED where there is no place; the status of EndAll after it.
  absl::StatusOr<std::unique_ptr<Place>> Enter(const std::string& tenant,
                                               std::shared_ptr<StepQueue> queue);
  // Ends all watches with an error. No other is taken from now on.
  void EndAll(const absl::Status& status);

 private:
  using Queues = std::list<std::shared_ptr<StepQueue>>;
  void Leave(const std::string& tenant, Queues::iterator queue);

  const int max_watchers_;
  absl::Mutex mutex_;
  Queues queues_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, int> num_of_tenant_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // OK until EndAll.
};

class StepWatchers::Place {
 public:
  Place(StepWatchers* watchers, std::string tenant, Queues::iterator queue)
      : watchers_(watchers), tenant_(std::move(tenant)), queue_(queue) {}
  ~Place() { watchers_->Leave(tenant_, queue_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  StepWatchers* const watchers_;
  const std::string tenant_;
  const Queues::iterator queue_;
};

}  // namespace continuo::gateway::openai
