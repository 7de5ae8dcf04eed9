// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/watch_steps_call.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/limits.h"
#include "services/protocol/proto_time.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/grpc/wire.h"
#include "services/worker/server/session/answer_sequence.h"

namespace continuo::server {
namespace {

// A loop without a pause would be a request to burn a core.
constexpr absl::Duration kMinStepsInterval = absl::Milliseconds(10);

v1::Step StepOf(const engine::StepRecord& record) {
  v1::Step step;
  step.set_number(record.number);
  *step.mutable_start_time() = protocol::ToProto(record.start);
  *step.mutable_duration() = protocol::ToProto(record.duration);
  step.set_waiting_requests(static_cast<uint32_t>(record.waiting));
  step.set_used_kv_blocks(static_cast<uint32_t>(record.used_blocks));
  for (const engine::StepRecord::SequenceRow& row : record.sequences) {
    v1::StepSequence& sequence = *step.add_sequences();
    sequence.set_request_id(row.label);
    sequence.set_index(static_cast<uint32_t>(row.index));
    sequence.set_prompt_tokens(static_cast<uint32_t>(row.prompt_tokens));
    sequence.set_cached_tokens(static_cast<uint32_t>(row.cached_tokens));
    sequence.set_new_tokens(static_cast<uint32_t>(row.new_tokens));
    sequence.set_generated_tokens(static_cast<uint32_t>(row.generated_tokens));
    sequence.set_preempted(row.preempted);
    sequence.set_finish_reason(ToProto(row.finish));
  }
  return step;
}

absl::StatusOr<absl::Duration> ReadInterval(const v1::WatchStepsRequest& request) {
  if (!request.has_min_interval()) return absl::Milliseconds(100);
  ASSIGN_OR_RETURN(
      const absl::Duration interval,
      protocol::ReadDuration("min_interval", request.min_interval(), protocol::kMaxWatchInterval));
  return std::max(interval, kMinStepsInterval);
}

}  // namespace

bool NextSteps(engine::StepLog::Watch& watch, v1::WatchStepsResponse& response) {
  const engine::StepLog::Watch::Steps steps = watch.Read();
  if (steps.records.empty()) return false;
  response.set_num_dropped(steps.num_dropped);
  size_t taken = 0, bytes = 0;
  for (const auto& record : steps.records) {
    v1::Step step = StepOf(*record);
    bytes += step.ByteSizeLong() + 8;  // with its tag and length
    if (taken > 0 && bytes > protocol::kMaxResponseBytes) break;
    *response.add_steps() = std::move(step);
    ++taken;
  }
  watch.Take(steps, taken);
  return true;
}

WatchStepsCall* WatchStepsCall::Start(const grpc::ByteBuffer& request, const ServingSlot* serving,
                                      const Lifecycle* lifecycle) {
  std::shared_ptr<WatchStepsCall> call(new WatchStepsCall(serving, lifecycle));
  call->self_ = call;
  if (const absl::Status status = call->Begin(request); !status.ok()) call->End(status);
  return call.get();
}

absl::Status WatchStepsCall::Begin(const grpc::ByteBuffer& bytes) {
  v1::WatchStepsRequest request;
  RETURN_IF_ERROR(ParseRequest(bytes, &request));
  ASSIGN_OR_RETURN(const absl::Duration interval, ReadInterval(request));
  const Serving* serving = serving_->get();
  if (serving == nullptr) return absl::UnavailableError("the model is being loaded");
  absl::MutexLock lock(&mutex_);
  interval_ = interval;
  watch_ = std::make_unique<engine::StepLog::Watch>(&serving->engine->step_log());
  StartSendInitialMetadata();
  ScheduleRead();
  return absl::OkStatus();
}

// gRPC runs the callback of a cancelled alarm when it likes, also after the server has ended. The
// call owns the alarm and the alarm its callback, so the callback gives its reference to the call
// up when it runs: otherwise the call would never be freed.
void WatchStepsCall::ScheduleRead() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + interval_), [self = self_](bool ok) mutable {
    const std::shared_ptr<WatchStepsCall> call = std::move(self);
    if (ok) call->Read();
  });
}

void WatchStepsCall::Read() {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;  // otherwise the call is open, so the worker's parts are there
  if (lifecycle_->drained()) {
    FinishWith(absl::UnavailableError("the worker ends"));
    return;
  }
  v1::WatchStepsResponse response;
  if (!NextSteps(*watch_, response)) {
    ScheduleRead();
    return;
  }
  common::SerializeMessage(response, &outgoing_);
  StartWrite(&outgoing_);
}

void WatchStepsCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  if (ok && !ended_) ScheduleRead();
}

void WatchStepsCall::OnCancel() { End(absl::CancelledError("the watcher is gone")); }

void WatchStepsCall::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) FinishWith(status);
}

void WatchStepsCall::FinishWith(const absl::Status& status) {
  ended_ = true;
  watch_.reset();
  if (alarm_ != nullptr) alarm_->Cancel();
  Finish(common::ToGrpcStatus(status));
}

void WatchStepsCall::OnDone() { const std::shared_ptr<WatchStepsCall> last = std::move(self_); }

}  // namespace continuo::server
