// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/grpc_worker_transport.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::gateway {

void SetCallContext(const CallContext& context, bool is_migration, const WorkerChannel& channel,
                    grpc::ClientContext* to) {
  channel.Authorize(to);
  to->AddMetadata("x-request-id", context.request_id);
  to->AddMetadata("x-tenant-id", context.tenant);
  if (is_migration) to->AddMetadata("x-continuo-move", "1");
  if (!context.call_id.empty()) to->AddMetadata("x-continuo-call", context.call_id);
  if (context.reference_time != absl::InfinitePast()) {
    to->AddMetadata("x-continuo-time", absl::StrCat(absl::ToUnixSeconds(context.reference_time)));
  }
  if (!context.body.empty()) to->AddMetadata("x-continuo-body", context.body);
  for (const auto& [key, value] : context.forwarded) to->AddMetadata(key, value);
  if (context.deadline != absl::InfiniteFuture()) {
    to->set_deadline(absl::ToChronoTime(context.deadline));
  }
}

// One call. Owns itself until gRPC is done with it. A gRPC hold keeps the call open while the relay
// may ask for another read; a failed read or Abandon releases it.
class GrpcWorkerTransport::WorkerStream : public WorkerCall,
                                          public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  WorkerStream(GrpcWorkerTransport* transport, std::shared_ptr<WorkerChannel> channel,
               std::shared_ptr<StreamRelay> relay, int attempt)
      : transport_(transport),
        channel_(std::move(channel)),
        relay_(std::move(relay)),
        attempt_(attempt) {}

  void Begin(std::shared_ptr<WorkerStream> self, const v1::GenerateRequest& request,
             const CallContext& context, bool is_migration) {
    self_ = std::move(self);
    SetCallContext(context, is_migration, *channel_, &context_);
    channel_->inference->async()->Generate(&context_, &request, this);
    AddHold();
    StartCall();
  }

  void StartRead() override { ClientReadReactor::StartRead(&response_); }
  void Abandon() override {
    context_.TryCancel();
    ReleaseHold();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok && context_.GetServerInitialMetadata().count("x-continuo-accepted") > 0) {
      relay_->OnAccepted(attempt_);
    }
  }
  void OnReadDone(bool ok) override {
    if (!ok) {
      ReleaseHold();
      return;
    }
    relay_->OnResponse(attempt_, std::exchange(response_, {}));
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<WorkerStream> self = std::move(self_);
    std::exchange(relay_, nullptr)->OnWorkerEnd(attempt_, common::FromGrpcStatus(status));
    // The last access to the transport: its destructor waits for this.
    absl::MutexLock lock(&transport_->mutex_);
    transport_->num_streams_ -= 1;
  }

 private:
  void ReleaseHold() {
    if (!released_.exchange(true)) RemoveHold();
  }

  GrpcWorkerTransport* const transport_;
  const std::shared_ptr<WorkerChannel> channel_;
  std::shared_ptr<StreamRelay> relay_;
  const int attempt_;
  std::shared_ptr<WorkerStream> self_;
  std::atomic<bool> released_ = false;
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
};

// A call to a worker that left between the pick and the call: its first read fails.
class GrpcWorkerTransport::NoStream : public WorkerCall {
 public:
  NoStream(const std::shared_ptr<StreamRelay>& relay, int attempt)
      : relay_(relay), attempt_(attempt) {}
  void StartRead() override {
    if (auto relay = relay_.lock()) {
      relay->OnWorkerEnd(attempt_, absl::UnavailableError("the worker is gone"));
    }
  }
  void Abandon() override {}

 private:
  const std::weak_ptr<StreamRelay> relay_;
  const int attempt_;
};

GrpcWorkerTransport::~GrpcWorkerTransport() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* n) { return *n == 0; }, &num_streams_));
}

std::shared_ptr<WorkerCall> GrpcWorkerTransport::Start(std::shared_ptr<StreamRelay> relay,
                                                       int attempt, const Lease& lease,
                                                       const v1::GenerateRequest& request,
                                                       const CallContext& context,
                                                       bool is_migration) {
  std::shared_ptr<WorkerChannel> channel = pool_->Find(lease.address());
  if (channel == nullptr) return std::make_shared<NoStream>(relay, attempt);
  {
    absl::MutexLock lock(&mutex_);
    num_streams_ += 1;
  }
  auto stream = std::make_shared<WorkerStream>(this, std::move(channel), std::move(relay), attempt);
  stream->Begin(stream, request, context, is_migration);
  return stream;
}

}  // namespace continuo::gateway
