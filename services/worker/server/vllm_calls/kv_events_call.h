// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/base/clock.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/lifetime/load_board.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/vllm/vllm_kv_events.h"
#include "services/worker/server/vllm/vllm_load_records.h"

namespace continuo::server {

// One stream of SubscribeKvEvents: tells its caller's tenant which blocks of prompts without an
// adapter the prefix cache holds, and the load beside. It looks into the engine's log at intervals,
// and not while a write is in flight: one who does not read costs the engine nothing and ends with
// DATA_LOSS once it reads again. Lives until gRPC is done with it.
class KvEventsCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  struct Dependencies {
    const Clock* clock;
    const SaltKey* salt_key;
    const LoadBoard* load_board;
    const ServingSlot* serving;
    const Lifecycle* lifecycle;
  };
  // Returns the reactor of a new call. It ends at once with UNAVAILABLE while the model is being
  // loaded. What `worker` points to, and the engine, outlive it.
  static KvEventsCall* Start(const grpc::ByteBuffer& request, const absl::StatusOr<CallInfo>& info,
                             const Dependencies& worker);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit KvEventsCall(const Dependencies& worker) : worker_(worker) {}
  absl::Status Begin(const grpc::ByteBuffer& request, const absl::StatusOr<CallInfo>& info);
  void ScheduleRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Read();
  // Writes the next message, or looks again later.
  void Continue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Fills in the next message, or returns false where there is none yet.
  absl::StatusOr<bool> Next(smg::grpc::common::KvEventBatch& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Dependencies worker_;
  std::shared_ptr<KvEventsCall> self_;  // until OnDone
  absl::Mutex mutex_;
  std::optional<VllmKvEvents> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<VllmLoadRecords> load_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
