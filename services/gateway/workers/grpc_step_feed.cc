// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/grpc_step_feed.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// gRPC's own messages would disclose addresses.
absl::Status EndOf(const grpc::Status& status) {
  if (status.ok() || status.error_code() == grpc::StatusCode::UNAVAILABLE || IsStranger(status)) {
    return protocol::WithReason(
        absl::UnavailableError("the worker tells no steps now: it loads, ends, or is gone"),
        protocol::kReasonWorkerLost);
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::UnimplementedError("the worker does not tell its steps");
  }
  return common::FromGrpcStatus(status);
}

}  // namespace

// One call. Owns itself until gRPC is done with it.
class GrpcStepFeed::Call : public grpc::ClientReadReactor<v1::WatchStepsResponse> {
 public:
  Call(GrpcStepFeed* feed, std::shared_ptr<WorkerChannel> channel, std::shared_ptr<Watcher> watcher)
      : feed_(feed), channel_(std::move(channel)), watcher_(std::move(watcher)) {}

  void Start(std::shared_ptr<Call> self) {
    self_ = std::move(self);
    channel_->Authorize(&context_);
    channel_->worker->async()->WatchSteps(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) watcher_->OnOpen();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    watcher_->OnSteps(response_);
    response_.Clear();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Call> self = std::move(self_);
    watcher_->OnEnd(EndOf(status));
    GrpcStepFeed* const feed = feed_;
    absl::MutexLock lock(&feed->mutex_);
    --feed->num_calls_;
  }

 private:
  GrpcStepFeed* const feed_;
  const std::shared_ptr<WorkerChannel> channel_;
  const std::shared_ptr<Watcher> watcher_;
  std::shared_ptr<Call> self_;
  grpc::ClientContext context_;
  const v1::WatchStepsRequest request_;
  v1::WatchStepsResponse response_;
};

GrpcStepFeed::~GrpcStepFeed() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* number) { return *number == 0; }, &num_calls_));
}

StepFeed::Cancel GrpcStepFeed::Watch(const std::string& address, std::shared_ptr<Watcher> watcher) {
  std::shared_ptr<WorkerChannel> channel = pool_->Find(address);
  if (channel == nullptr) {
    watcher->OnEnd(protocol::WithReason(absl::UnavailableError("the worker is gone"),
                                        protocol::kReasonWorkerLost));
    return [] {};
  }
  {
    absl::MutexLock lock(&mutex_);
    ++num_calls_;
  }
  const auto call = std::make_shared<Call>(this, std::move(channel), std::move(watcher));
  call->Start(call);
  return [call] { call->Cancel(); };
}

}  // namespace continuo::gateway
