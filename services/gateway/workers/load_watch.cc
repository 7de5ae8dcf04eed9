// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/load_watch.h"

#include "services/protocol/load_delta.h"

namespace continuo::gateway {

void LoadWatch::Start(std::shared_ptr<LoadWatch> self) {
  self_ = std::move(self);
  channel_->Authorize(&context_);
  channel_->worker->async()->WatchLoad(&context_, &request_, this);
  StartRead(&response_);
  StartCall();
}

void LoadWatch::OnReadDone(bool ok) {
  if (!ok) return;
  if (!response_.is_delta()) {
    report_ = std::move(response_);
  } else if (report_.has_value()) {
    protocol::ApplyLoadDelta(response_, &*report_);
  }
  // A delta that follows nothing says nothing.
  if (report_.has_value()) on_report_(*report_);
  response_.Clear();
  StartRead(&response_);
}

void LoadWatch::OnDone(const grpc::Status& status) {
  const std::shared_ptr<LoadWatch> self = std::move(self_);
  on_end_(status);
}

}  // namespace continuo::gateway
