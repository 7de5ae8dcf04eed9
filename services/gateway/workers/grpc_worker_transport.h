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

// Sets the metadata and the deadline of a call to a worker: tenant, request id, call id, trace, and
// whether it continues a stream of another worker (a migration).
void SetCallContext(const CallContext& context, bool is_migration, const WorkerChannel& channel,
                    grpc::ClientContext* to);

// Calls Generate of workers over gRPC. Thread-safe.
class GrpcWorkerTransport : public WorkerTransport {
 public:
  // The pool outlives the transport.
  explicit GrpcWorkerTransport(const WorkerPool* pool) : pool_(pool) {}
  // Waits until gRPC is done with all calls. Each has ended or was abandoned before.
  ~GrpcWorkerTransport() override;

  std::shared_ptr<WorkerCall> Start(std::shared_ptr<StreamRelay> relay, int attempt,
                                    const Lease& lease, const v1::GenerateRequest& request,
                                    const CallContext& context, bool is_migration) override;

 private:
  class WorkerStream;
  class NoStream;

  const WorkerPool* const pool_;
  absl::Mutex mutex_;
  int num_streams_ ABSL_GUARDED_BY(mutex_) = 0;  // Calls that gRPC is not done with.
};

}  // namespace continuo::gateway
