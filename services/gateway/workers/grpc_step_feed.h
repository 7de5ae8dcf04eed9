// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/relay/step_feed.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// Calls WatchSteps of workers over gRPC. Thread-safe.
class GrpcStepFeed : public StepFeed {
 public:
  // The pool outlives the feed.
  explicit GrpcStepFeed(const WorkerPool* pool) : pool_(pool) {}
  // Waits until gRPC is done with all calls. Each has ended or was cancelled before.
  ~GrpcStepFeed() override;

  Cancel Watch(const std::string& address, std::shared_ptr<Watcher> watcher) override;

 private:
  class Call;

  const WorkerPool* const pool_;
  absl::Mutex mutex_;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;  // Calls that gRPC is not done with.
};

}  // namespace continuo::gateway
