// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/adapters/adapter_updates.h"
#include "services/gateway/workers/worker_pool.h"

namespace continuo::gateway {

// Calls LoadAdapter and UnloadAdapter of workers over gRPC, and logs each update. Thread-safe.
class GrpcAdapterUpdates : public AdapterUpdates {
 public:
  // Both outlive the object.
  GrpcAdapterUpdates(const LoadView* view, const WorkerPool* pool) : view_(view), pool_(pool) {}
  // Waits until gRPC is done with all calls. Each has ended or was cancelled before.
  ~GrpcAdapterUpdates() override;

  Cancel Apply(AdapterUpdate update, absl::Duration timeout, Done done) override;

 private:
  class Operation;

  const LoadView* const view_;
  const WorkerPool* const pool_;
  absl::Mutex mutex_;
  int num_operations_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway
