// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/time/time.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/base/clock.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/lifetime/load_board.h"
#include "services/worker/server/lifetime/request_registry.h"
#include "services/worker/server/runtime/serving.h"

namespace continuo::server {

// WorkerService: the calls of gateways and operators. They are for peers of the fleet alone,
// WatchLoad where the worker knows them by names or tokens (PeerCheck). Every method takes bytes
// and parses them itself (see wire.h).
class WorkerService : public v1::WorkerService::WithRawCallbackMethod_WatchLoad<
                          v1::WorkerService::WithRawCallbackMethod_WatchSteps<
                              v1::WorkerService::WithRawCallbackMethod_Drain<
                                  v1::WorkerService::WithRawCallbackMethod_Abort<
                                      v1::WorkerService::WithRawCallbackMethod_LoadAdapter<
                                          v1::WorkerService::WithRawCallbackMethod_UnloadAdapter<
                                              v1::WorkerService::Service>>>>>> {
 public:
  // The parts of the worker that the service uses. All of them outlive it.
  struct Dependencies {
    const Clock* clock;
    const ServingSlot* serving;
    Lifecycle* lifecycle;
    RequestRegistry* registry;
    LoadBoard* load_board;
    PeerPolicy peers;
    absl::Duration drain_grace;  // of a Drain that names none
  };
  explicit WorkerService(const Dependencies& dependencies) : worker_(dependencies) {}

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
  grpc::ServerUnaryReactor* LoadAdapter(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* UnloadAdapter(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  const Dependencies worker_;
};

}  // namespace continuo::server
