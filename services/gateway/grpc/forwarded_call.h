// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/common/grpc/grpc_status.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/routing/router.h"
#include "services/gateway/workers/grpc_worker_transport.h"
#include "services/gateway/workers/worker_pool.h"
#include "services/protocol/error.h"

namespace continuo::gateway {

// One unary call of a client, forwarded to one worker at a time. Lives until `done` has been
// called. Method is called with (stub, client context, request, response, callback).
template <typename Request, typename Response, typename Method>
class ForwardedCall
    : public std::enable_shared_from_this<ForwardedCall<Request, Response, Method>> {
 public:
  using Done = std::function<void(const grpc::Status& status, Response response)>;

  ForwardedCall(OpenCalls* open, Router* router, const WorkerPool* pool, Request request,
                CallContext context, Admission::Ticket ticket, Method method, Done done)
      : open_(open),
        router_(router),
        pool_(pool),
        request_(std::move(request)),
        call_context_(std::move(context)),
        ticket_(std::move(ticket)),
        method_(method),
        done_(std::move(done)) {}

  // Calls a worker that has not failed yet.
  void TryNext() {
    const RouteKey key = {.model = request_.model(), .failures = failures_};
    const auto attempt = std::make_shared<Attempt>();
    absl::StatusOr<Lease> lease = router_->Pick(key, [attempt] {
      attempt->lost = true;
      attempt->context.TryCancel();
    });
    std::shared_ptr<WorkerChannel> channel;
    if (lease.ok()) channel = pool_->Find(lease->address());
    if (channel == nullptr) {
      Finish(common::ToGrpcStatus(lease.ok() ? absl::UnavailableError("the worker is gone")
                                             : lease.status()));
      return;
    }
    lease_ = *std::move(lease);
    SetCallContext(call_context_, /*is_migration=*/false, *channel, &attempt->context);
    {
      absl::MutexLock lock(&mutex_);
      attempt_ = attempt;
      if (cancelled_) attempt->context.TryCancel();
    }
    response_.Clear();
    // The channel lives as long as the call.
    method_(channel->inference.get(), &attempt->context, &request_, &response_,
            [self = this->shared_from_this(), channel, attempt](const grpc::Status& status) {
              self->OnAnswer(status, attempt->lost);
            });
  }

  // The call ends early, with an error.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (attempt_ != nullptr) attempt_->context.TryCancel();
  }

 private:
  static constexpr int kMaxTries = 3;
  // The call to one worker.
  struct Attempt {
    grpc::ClientContext context;
    std::atomic<bool> lost = false;  // The worker is silent or hung; the call was cancelled.
  };

  void OnAnswer(const grpc::Status& status, bool lost) {
    // A worker that has unloaded the model is asked until its next report comes.
    const bool is_elsewhere =
        status.error_code() == grpc::StatusCode::NOT_FOUND && router_->HasOther(*lease_, failures_);
    failures_.push_back({lease_->address(), 1});
    lease_.reset();
    if (is_elsewhere && static_cast<int>(failures_.size()) < kMaxTries) {
      TryNext();
      return;
    }
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE || (lost && !status.ok()) ||
        IsStranger(status)) {
      if (static_cast<int>(failures_.size()) < kMaxTries) {
        TryNext();
        return;
      }
      // gRPC's own message would reveal an address.
      Finish(common::ToGrpcStatus(protocol::WithReason(
          absl::UnavailableError("worker after worker was lost"), protocol::kReasonWorkerLost)));
      return;
    }
    Finish(status);
  }
  void Finish(const grpc::Status& status) {
    const Done done = std::move(done_);
    done(status, std::move(response_));
  }

  const OpenCalls::Call open_;
  Router* const router_;
  const WorkerPool* const pool_;
  const Request request_;
  const CallContext call_context_;
  const Admission::Ticket ticket_;
  const Method method_;
  Done done_;
  Response response_;
  std::optional<Lease> lease_;
  std::vector<Failure> failures_;

  absl::Mutex mutex_;
  std::shared_ptr<Attempt> attempt_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// The client's side of a ForwardedCall over gRPC. Owns itself until gRPC is done with it.
template <typename Call>
class ForwardedReactor : public grpc::ServerUnaryReactor {
 public:
  explicit ForwardedReactor(OpenCalls* open) : open_(open) {}
  // Called before the call begins.
  void Attach(std::shared_ptr<Call> call) { call_ = std::move(call); }
  void OnCancel() override { call_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  const OpenCalls::Call open_;
  std::shared_ptr<Call> call_;
};

}  // namespace continuo::gateway
