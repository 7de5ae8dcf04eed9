// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/watch_load_call.h"

#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/load_delta.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {
namespace {

// A loop without a pause would be a request to burn a core.
constexpr absl::Duration kMinLoadInterval = absl::Milliseconds(1);

absl::StatusOr<absl::Duration> Interval(std::string_view field, bool is_set,
                                        const google::protobuf::Duration& value,
                                        absl::Duration otherwise) {
  if (!is_set) return otherwise;
  return protocol::ReadDuration(field, value, protocol::kMaxWatchInterval);
}

absl::StatusOr<WatchPace> ReadPace(const v1::WatchLoadRequest& request) {
  ASSIGN_OR_RETURN(const absl::Duration max, Interval("max_interval", request.has_max_interval(),
                                                      request.max_interval(), absl::Seconds(1)));
  ASSIGN_OR_RETURN(const absl::Duration min,
                   Interval("min_interval", request.has_min_interval(), request.min_interval(),
                            std::min(absl::Milliseconds(100), max)));
  if (min > max) return protocol::FieldError("min_interval", "is above max_interval");
  return WatchPace(std::max(min, kMinLoadInterval), std::max(max, kMinLoadInterval));
}

}  // namespace

WatchLoadCall* WatchLoadCall::Start(const grpc::ByteBuffer& request, LoadBoard* board) {
  std::shared_ptr<WatchLoadCall> call(new WatchLoadCall(board));
  call->self_ = call;
  v1::WatchLoadRequest message;
  // A gateway of a later release may ask for more; it gets the fields that this worker knows.
  absl::Status status = common::ParseMessage(request, &message);
  if (status.ok()) {
    call->sends_deltas_ = message.accepts_deltas();
    if (const auto pace = ReadPace(message); pace.ok()) {
      board->Watch(call, *pace);
    } else {
      status = pace.status();
    }
  }
  if (!status.ok()) call->End(status);
  return call.get();
}

void WatchLoadCall::Send(const v1::WatchLoadResponse& response) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  if (writing_) {
    next_ = response;
    return;
  }
  Write(response);
}

void WatchLoadCall::Write(const v1::WatchLoadResponse& response) {
  writing_ = true;
  if (full_.has_value() && protocol::IsDeltaOf(response, *full_)) {
    common::SerializeMessage(protocol::MakeLoadDelta(response), &outgoing_);
  } else {
    if (sends_deltas_) full_ = response;
    common::SerializeMessage(response, &outgoing_);
  }
  StartWrite(&outgoing_);
}

void WatchLoadCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok || ended_ || !next_.has_value()) return;
  Write(*std::exchange(next_, std::nullopt));
}

void WatchLoadCall::Close() { End(absl::UnavailableError("the worker ends")); }

void WatchLoadCall::OnCancel() { End(absl::CancelledError("the watcher is gone")); }

void WatchLoadCall::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(ended_, true)) return;
  Finish(common::ToGrpcStatus(status));
}

void WatchLoadCall::OnDone() {
  board_->Unwatch(this);
  const std::shared_ptr<WatchLoadCall> last = std::move(self_);
}

}  // namespace continuo::server
