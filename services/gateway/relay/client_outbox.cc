// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/client_outbox.h"

#include <utility>

namespace continuo::gateway {

void ClientOutbox::Push(v1::GenerateResponse response) {
  waiting_bytes_ += response.ByteSizeLong();
  waiting_.push_back(std::move(response));
}

void ClientOutbox::Clear() {
  waiting_.clear();
  waiting_bytes_ = 0;
}

void ClientOutbox::WriteNext() {
  if (is_writing_ || waiting_.empty()) return;
  is_writing_ = true;
  const v1::GenerateResponse response = std::move(waiting_.front());
  waiting_.pop_front();
  waiting_bytes_ -= response.ByteSizeLong();
  client_->Write(response);
}

void ClientOutbox::WriteEnd(const absl::Status& status, const RelayReport& report) {
  if (waiting_.empty()) return client_->Finish(status, report);
  const v1::GenerateResponse response = std::move(waiting_.front());
  Clear();
  client_->WriteLast(response, status, report);
}

bool ClientOutbox::has_room() const {
  return waiting_.size() < options_.max_responses && waiting_bytes_ < options_.max_bytes;
}

}  // namespace continuo::gateway
