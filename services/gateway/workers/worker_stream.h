// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/relay/stream_relay.h"
#include "services/gateway/workers/worker_pool.h"

namespace grpc {
class ClientContext;
}

namespace continuo::gateway {

// What every call to a worker carries: tenant, request id, trace, deadline.
void SetCallContext(const CallContext& context, bool is_migration, grpc::ClientContext* to);

// Calls of Generate to workers over gRPC. Thread-safe.
class GrpcWorkerTransport : public WorkerTransport {
 public:
  // The pool outlives the transport.
  explicit GrpcWorkerTransport(const WorkerPool* pool) : pool_(pool) {}
  // Waits for all calls to end; all have been abandoned or have ended before.
  ~GrpcWorkerTransport() override;

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& lease, const v1::GenerateRequest& request,
                                    const CallContext& context, bool is_migration) override;

 private:
  class WorkerStream;
  class NoStream;

  const WorkerPool* const pool_;
  absl::Mutex mutex_;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace continuo::gateway
