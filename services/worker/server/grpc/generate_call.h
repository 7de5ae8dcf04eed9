// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/telemetry/call_trace.h"
#include "services/worker/server/grpc/call_cutter.h"
#include "services/worker/server/grpc/worker_core.h"
#include "services/worker/server/lifetime/request_registry.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/generate_session.h"

namespace continuo::server {

// One call of Generate: gRPC's callbacks on one side, a GenerateSession on the other. Deletes
// itself when gRPC is done with it.
class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ResponseWriter {
 public:
  // `core` outlives the call. Long prompts are read on the core's text pool.
  GenerateCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
               WorkerCore* core);

  // grpc::ServerWriteReactor
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // ResponseWriter
  void TellAccepted() override;
  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;

 private:
  using Reactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;

  ~GenerateCall() override = default;
  void Run();
  // Hands the request to the engine, or answers it right away. Not OK: nothing was started.
  absl::Status Start();
  // Logs the end of the call, and ends its span.
  void Tell(const absl::Status& status);

  WorkerCore* const core_;
  grpc::CallbackServerContext* const context_;
  absl::StatusOr<CallInfo> info_;
  const absl::Duration start_;
  common::CallTrace trace_;
  grpc::ByteBuffer bytes_;     // of the request, until it is parsed
  grpc::ByteBuffer outgoing_;  // of the write in flight
  const engine::RequestId id_;
  std::string label_;
  const std::shared_ptr<const CallCutter> cutter_;
  const std::shared_ptr<RequestControl> control_;
  std::shared_ptr<GenerateSession> session_;
};

}  // namespace continuo::server
