// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/worker/engine/step_log.h"
#include "services/worker/server/grpc/worker_core.h"

namespace continuo::server {

// The next response to a watcher: what fits 1 MiB of the steps it has not got, at least one, and
// the number of those lost before them. False where there is nothing to tell.
bool NextSteps(engine::StepLog::Watch& watch, v1::WatchStepsResponse& response);

// One stream of WatchSteps: looks at the engine's step log once in the interval, and not while a
// write is in flight. Lives until gRPC is done with it.
class WatchStepsCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // The reactor of a new call; ends at once, with UNAVAILABLE, while the model is being loaded.
  // `core` and its engine outlive it.
  static WatchStepsCall* Start(const grpc::ByteBuffer& request, WorkerCore* core);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit WatchStepsCall(WorkerCore* core) : core_(core) {}
  absl::Status Begin(const grpc::ByteBuffer& request);
  void LookLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Look();
  void End(const absl::Status& status);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  WorkerCore* const core_;
  std::shared_ptr<WatchStepsCall> self_;  // until OnDone
  absl::Mutex mutex_;
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<engine::StepLog::Watch> watch_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
