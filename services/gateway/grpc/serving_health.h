// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/common/grpc/grpc_server.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// The health service of the gateway (grpc.health.v1): "" is SERVING until the drain, even without
// workers, so that scaling from zero works; the inference service and each known model are SERVING
// while a worker serves them. Thread-safe.
class ServingHealth {
 public:
  // The view outlives this.
  explicit ServingHealth(const LoadView* view) : view_(view) {}

  // Health is told to `server` from now on, until BeginDrain. The server outlives this.
  void Open(common::GrpcServer* server);
  // The set of workers that take requests may have changed.
  void Update();
  // Everything is NOT_SERVING for good. Does nothing before Open.
  void BeginDrain();
  // Open was called, and BeginDrain was not.
  bool healthy() const;

 private:
  const LoadView* const view_;
  mutable absl::Mutex mutex_;
  common::GrpcServer* server_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null where not healthy.
};

}  // namespace continuo::gateway
