// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load/load_stream.h"

#include <algorithm>
#include <utility>

#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {

LoadStream* LoadStream::Start(const absl::StatusOr<WatchPace>& pace, Encoder encode,
                              LoadBoard* board) {
  std::shared_ptr<LoadStream> call(new LoadStream(std::move(encode), board));
  call->self_ = call;
  if (pace.ok()) {
    board->Watch(call, *pace);
  } else {
    call->End(pace.status());
  }
  return call.get();
}

void LoadStream::Send(const v1::WatchLoadResponse& response) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  if (writing_) {
    next_ = response;
    return;
  }
  Write(response);
}

void LoadStream::Write(const v1::WatchLoadResponse& response) {
  writing_ = true;
  encode_(response, &outgoing_);
  StartWrite(&outgoing_);
}

void LoadStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  if (!ok || ended_ || !next_.has_value()) return;
  Write(*std::exchange(next_, std::nullopt));
}

void LoadStream::Close() { End(absl::UnavailableError("the worker ends")); }

void LoadStream::OnCancel() { End(absl::CancelledError("the watcher is gone")); }

void LoadStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(ended_, true)) return;
  Finish(common::ToGrpcStatus(status));
}

void LoadStream::OnDone() {
  board_->Unwatch(this);
  const std::shared_ptr<LoadStream> last = std::move(self_);
}

absl::StatusOr<absl::Duration> ReadInterval(std::string_view field, bool is_set,
                                            const google::protobuf::Duration& value,
                                            absl::Duration otherwise) {
  constexpr absl::Duration kMinInterval = absl::Milliseconds(1);
  absl::Duration interval = otherwise;
  if (is_set) {
    ASSIGN_OR_RETURN(interval, protocol::ReadDuration(field, value, protocol::kMaxWatchInterval));
  }
  return std::max(interval, kMinInterval);
}

}  // namespace continuo::server
