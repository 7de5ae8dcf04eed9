// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/telemetry/call_trace.h"
#include "services/worker/server/embed/embed_session.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/grpc/generate_call.h"
#include "services/worker/server/lifetime/request_control.h"

namespace continuo::server {

// The messages of a protocol that has vectors, as bytes. Thread-safe.
struct EmbedForm {
  // Reads the client's request. INVALID_ARGUMENT names a field of the protocol.
  absl::Status (*parse)(const grpc::ByteBuffer& bytes, v1::EmbedRequest* request);
  void (*serialize)(const v1::EmbedResponse& response, grpc::ByteBuffer* bytes);
  // An error as the client gets it: with the protocol's names of fields.
  absl::Status (*explain)(const absl::Status& status);
};
// The form of InferenceService itself.
extern const EmbedForm kOwnEmbedForm;

// One call of Embed: gRPC's callbacks on one side, an EmbedSession on the other. Deletes itself
// when gRPC is done with it.
class EmbedCall : public grpc::ServerUnaryReactor {
 public:
  // `next_id` is the engine's next name for a request; the call takes one for each input. It and
  // the dependencies outlive the call.
  EmbedCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
            grpc::ByteBuffer* response, std::atomic<engine::RequestId>* next_id,
            const GenerateCall::Dependencies& dependencies, const EmbedForm& form = kOwnEmbedForm);

  // grpc::ServerUnaryReactor
  void OnCancel() override;
  void OnDone() override;

 private:
  ~EmbedCall() override = default;
  void Run();
  // Parses the request and finds the model, which may be an adapter that has to be read first, and
  // goes on with StartWith. On an error nothing was started.
  absl::Status Start();
  // Makes the request one of the live ones, by its id.
  absl::Status Register(const std::string& label);
  // Hands the inputs to the engine. On an error nothing was started.
  absl::Status StartWith(const v1::EmbedRequest& request, std::shared_ptr<const ServedModel> model);
  void LogEnd(const absl::Status& status);
  void End(absl::StatusOr<v1::EmbedResponse> response);

  const GenerateCall::Dependencies worker_;
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const response_;
  const EmbedForm form_;
  const engine::RequestId waiter_;  // names the call while it waits for its adapter
  std::atomic<engine::RequestId>* const next_id_;
  absl::StatusOr<CallInfo> info_;
  const absl::Duration start_;
  common::CallTrace trace_;
  grpc::ByteBuffer bytes_;  // of the request, until it is parsed
  std::string label_;
  std::shared_ptr<const ServedModel> model_;  // null until the request is parsed
  // The session that a cancellation ends, once there is one. Thread-safe.
  class SessionPlace {
   public:
    void Set(const std::shared_ptr<EmbedSession>& session) {
      absl::MutexLock lock(&mutex_);
      session_ = session;
    }
    std::shared_ptr<EmbedSession> Get() const {
      absl::MutexLock lock(&mutex_);
      return session_.lock();
    }

   private:
    mutable absl::Mutex mutex_;
    std::weak_ptr<EmbedSession> session_ ABSL_GUARDED_BY(mutex_);
  };
  const std::shared_ptr<SessionPlace> cancelled_session_;
  const std::shared_ptr<RequestControl> control_;
  std::shared_ptr<EmbedSession> session_;
};

}  // namespace continuo::server
