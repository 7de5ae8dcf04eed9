// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include "continuo/v1/worker.grpc.pb.h"
#include "services/worker/server/grpc/worker_core.h"

namespace continuo::server {

// WorkerService: what gateways and operators ask of a worker. Every method takes bytes and parses
// them itself (see wire.h).
class WorkerService
    : public v1::WorkerService::WithRawCallbackMethod_WatchLoad<
          v1::WorkerService::WithRawCallbackMethod_WatchSteps<
              v1::WorkerService::WithRawCallbackMethod_Drain<
                  v1::WorkerService::WithRawCallbackMethod_Abort<v1::WorkerService::Service>>>> {
 public:
  // `core` outlives the service.
  explicit WorkerService(WorkerCore* core) : core_(core) {}

  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchLoad(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchSteps(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  WorkerCore* const core_;
};

}  // namespace continuo::server
