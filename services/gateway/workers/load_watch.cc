// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/load_watch.h"

namespace continuo::gateway {

void LoadWatch::Start(std::shared_ptr<LoadWatch> self) {
  self_ = std::move(self);
  channel_->worker->async()->WatchLoad(&context_, &request_, this);
  StartRead(&report_);
  StartCall();
}

void LoadWatch::OnReadDone(bool ok) {
  if (!ok) return;
  on_report_(report_);
  StartRead(&report_);
}

void LoadWatch::OnDone(const grpc::Status& status) {
  const std::shared_ptr<LoadWatch> self = std::move(self_);
  on_end_(status);
}

}  // namespace continuo::gateway
