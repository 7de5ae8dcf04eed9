// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm_calls/kv_events_call.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {
namespace {

// How long an event may wait for its subscribers.
constexpr absl::Duration kEventsInterval = absl::Milliseconds(20);

}  // namespace

KvEventsCall* KvEventsCall::Start(const grpc::ByteBuffer& request,
                                  const absl::StatusOr<CallInfo>& info,
                                  const Dependencies& worker) {
  std::shared_ptr<KvEventsCall> call(new KvEventsCall(worker));
  call->self_ = call;
  if (const absl::Status status = call->Begin(request, info); !status.ok()) call->End(status);
  return call.get();
}

absl::Status KvEventsCall::Begin(const grpc::ByteBuffer& bytes,
                                 const absl::StatusOr<CallInfo>& info) {
  RETURN_IF_ERROR(info.status());
  smg::grpc::common::SubscribeKvEventsRequest request;
  RETURN_IF_ERROR(common::ParseMessage(bytes, &request));
  RETURN_IF_ERROR(protocol::RejectUnknownFields(request));
  const Serving* const serving = worker_.serving->get();
  if (serving == nullptr) return absl::UnavailableError("the model is being loaded");
  // Requests by this protocol have neither a salt nor an adapter.
  const engine::CacheSalt salt = worker_.salt_key->Combine(info->tenant, "");
  const uint64_t number = request.start_sequence_number();
  auto watch = number == 0 ? serving->engine->WatchKvEvents(salt)
                           : serving->engine->kv_event_log().Resume(number);
  if (absl::IsResourceExhausted(watch.status())) {
    return protocol::OverloadedError(std::string(watch.status().message()));
  }
  RETURN_IF_ERROR(watch.status());
  absl::MutexLock lock(&mutex_);
  events_.emplace(*std::move(watch), salt, serving->engine->Load().block_size);
  std::optional<uint64_t> last;
  if (number != 0 || request.load_records_before_first_batch()) last = number;
  load_.emplace(last, worker_.clock->Elapsed());
  StartSendInitialMetadata();
  ScheduleRead();
  return absl::OkStatus();
}

// As in WatchStepsCall: gRPC runs the callback of a cancelled alarm when it likes, also after the
// server has ended, so the callback gives its reference to the call up when it runs.
void KvEventsCall::ScheduleRead() {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + kEventsInterval), [self = self_](bool ok) mutable {
    const std::shared_ptr<KvEventsCall> call = std::move(self);
    if (ok) call->Read();
  });
}

void KvEventsCall::Read() {
  absl::MutexLock lock(&mutex_);
  if (!ended_) Continue();  // the call is open, so the worker's parts are there
}

void KvEventsCall::Continue() {
  if (worker_.lifecycle->drained()) {
    FinishWith(absl::UnavailableError("the worker ends"));
    return;
  }
  smg::grpc::common::KvEventBatch message;
  const absl::StatusOr<bool> found = Next(message);
  if (!found.ok()) {
    FinishWith(found.status());
    return;
  }
  if (!*found) {
    ScheduleRead();
    return;
  }
  common::SerializeMessage(message, &outgoing_);
  StartWrite(&outgoing_);
}

absl::StatusOr<bool> KvEventsCall::Next(smg::grpc::common::KvEventBatch& message) {
  ASSIGN_OR_RETURN(const bool found, events_->Next(message));
  const absl::Duration now = worker_.clock->Elapsed();
  if (found) {
    load_->AddTo(worker_.load_board->Read(), now, message);
    return true;
  }
  return load_->MayLook(now) &&
         load_->NextAlone(worker_.load_board->Read(), now, worker_.clock->Now(), message);
}

void KvEventsCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  if (ok && !ended_) Continue();
}

void KvEventsCall::OnCancel() { End(absl::CancelledError("the subscriber is gone")); }

void KvEventsCall::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) FinishWith(status);
}

void KvEventsCall::FinishWith(const absl::Status& status) {
  ended_ = true;
  events_.reset();
  if (alarm_ != nullptr) alarm_->Cancel();
  Finish(common::ToGrpcStatus(status));
}

void KvEventsCall::OnDone() { const std::shared_ptr<KvEventsCall> last = std::move(self_); }

}  // namespace continuo::server
