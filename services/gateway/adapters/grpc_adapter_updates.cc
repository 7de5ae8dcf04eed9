// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/adapters/grpc_adapter_updates.h"

#include <grpcpp/client_context.h>

#include <atomic>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/log.h"
#include "services/protocol/error.h"
#include "services/protocol/status_name.h"

namespace continuo::gateway {
namespace {

// gRPC's own messages would disclose addresses.
absl::Status EndOf(const grpc::Status& ended) {
  const absl::Status status = common::FromGrpcStatus(ended);
  if (IsStranger(ended)) return absl::UnavailableError("the worker refuses this gateway");
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (!protocol::ReasonOf(status).empty()) return status;
      return absl::UnavailableError("the worker does not answer, or loads");
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError("the worker has not answered in time");
    case absl::StatusCode::kCancelled:
      return absl::CancelledError("the caller left before the worker answered");
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError("the worker has no adapters that are loaded as it serves");
    default:
      return status;
  }
}

}  // namespace

// One update. Kept by the calls in flight and by whoever may cancel it.
class GrpcAdapterUpdates::Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation(GrpcAdapterUpdates* owner, AdapterUpdate update, std::vector<WorkerOutcome> workers,
            Done done)
      : owner_(owner),
        update_(std::move(update)),
        workers_(std::move(workers)),
        done_(std::move(done)),
        num_left_(workers_.size() + 1) {}

  void Start(absl::Duration timeout) {
    const auto deadline = absl::ToChronoTime(absl::Now() + timeout);
    for (WorkerOutcome& worker : workers_) {
      std::shared_ptr<WorkerChannel> channel;
      if (worker.status.ok()) {
        channel = owner_->pool_->Find(worker.address);
        if (channel == nullptr) worker.status = absl::UnavailableError("the worker is gone");
      }
      if (channel == nullptr) {
        Left();
        continue;
      }
      Call& call = calls_.emplace_back();
      call.context.set_deadline(deadline);
      channel->Authorize(&call.context);
      auto* const stub = channel->worker->async();
      auto on_end = [self = shared_from_this(), channel, &worker](const grpc::Status& status) {
        worker.status = EndOf(status);
        self->Left();
      };
      if (update_.kind == AdapterUpdate::Kind::kLoad) {
        call.load.set_name(update_.name);
        call.load.set_path(update_.path);
        stub->LoadAdapter(&call.context, &call.load, &call.loaded, std::move(on_end));
      } else {
        call.unload.set_name(update_.name);
        stub->UnloadAdapter(&call.context, &call.unload, &call.unloaded, std::move(on_end));
      }
    }
    Left();
  }
  // Once Start has returned.
  void Cancel() {
    for (Call& call : calls_) call.context.TryCancel();
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::LoadAdapterRequest load;
    v1::LoadAdapterResponse loaded;
    v1::UnloadAdapterRequest unload;
    v1::UnloadAdapterResponse unloaded;
  };

  // A worker has its outcome, or all have been asked.
  void Left() {
    if (num_left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    AdapterOutcome outcome = JoinOutcomes(update_, std::move(workers_));
    const bool is_load = update_.kind == AdapterUpdate::Kind::kLoad;
    common::Log(outcome.status.ok() ? common::LogSeverity::kInfo : common::LogSeverity::kWarning,
                is_load ? "adapter loaded" : "adapter unloaded",
                {{"adapter", update_.name},
                 {"model", outcome.base},
                 {"workers", outcome.workers.size()},
                 {"code", protocol::StatusName(outcome.status.code())},
                 {"reason", std::string(outcome.status.message())}});
    done_(std::move(outcome));
    GrpcAdapterUpdates* const owner = owner_;
    absl::MutexLock lock(&owner->mutex_);
    --owner->num_operations_;
  }

  GrpcAdapterUpdates* const owner_;
  const AdapterUpdate update_;
  std::vector<WorkerOutcome> workers_;  // each written by its call
  const Done done_;
  std::deque<Call> calls_;
  std::atomic<size_t> num_left_;  // workers, and the start
};

GrpcAdapterUpdates::~GrpcAdapterUpdates() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* number) { return *number == 0; }, &num_operations_));
}

AdapterUpdates::Cancel GrpcAdapterUpdates::Apply(AdapterUpdate update, absl::Duration timeout,
                                                 Done done) {
  absl::StatusOr<std::vector<WorkerOutcome>> targets = FindTargets(*view_->Get(), &update);
  if (!targets.ok()) {
    done(targets.status());
    return [] {};
  }
  {
    absl::MutexLock lock(&mutex_);
    ++num_operations_;
  }
  const auto operation =
      std::make_shared<Operation>(this, std::move(update), *std::move(targets), std::move(done));
  operation->Start(timeout);
  return [operation] { operation->Cancel(); };
}

}  // namespace continuo::gateway
