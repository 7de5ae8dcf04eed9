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
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/runtime/serving.h"

namespace continuo::server {

// Fills in the next response to a watcher: the steps that it does not have yet, as many as fit
// kMaxResponseBytes but at least one, and the number of steps that were lost before them. False
// where there is no step.
bool NextSteps(engine::StepLog::Watch& watch, v1::WatchStepsResponse& response);

// One stream of WatchSteps: reads the engine's step log once per interval, and not while a write is
// in flight. Lives until gRPC is done with it.
class WatchStepsCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // Returns the reactor of a new call. It ends at once with UNAVAILABLE while the model is being
  // loaded. `serving`, its engine and `lifecycle` outlive it.
  static WatchStepsCall* Start(const grpc::ByteBuffer& request, const ServingSlot* serving,
                               const Lifecycle* lifecycle);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  WatchStepsCall(const ServingSlot* serving, const Lifecycle* lifecycle)
      : serving_(serving), lifecycle_(lifecycle) {}
  absl::Status Begin(const grpc::ByteBuffer& request);
  void ScheduleRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read();
  void End(const absl::Status& status);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ServingSlot* const serving_;
  const Lifecycle* const lifecycle_;
  std::shared_ptr<WatchStepsCall> self_;  // until OnDone
  absl::Mutex mutex_;
  absl::Duration interval_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<engine::StepLog::Watch> watch_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
