// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/live_streams.h"

#include "services/base/status_macros.h"

namespace continuo::gateway {

absl::Status LiveStreams::Enter(const std::shared_ptr<StreamRelay>& relay, RequestKey key,
                                bool is_continuation) {
  std::shared_ptr<StreamRelay> replaced;
  {
    absl::MutexLock lock(&mutex_);
    // The request was admitted before the drain began, but too late for EndAll to end it.
    RETURN_IF_ERROR(ended_);
    const StreamRelay*& live = live_[key];
    if (live != nullptr) {
      if (!is_continuation) return absl::AlreadyExistsError("a request of this request_id is live");
      // Null if it ends at this moment.
      replaced = open_[live].relay.lock();
    }
    live = relay.get();
    open_.emplace(relay.get(), OpenRelay{relay, std::move(key)});
  }
  if (replaced != nullptr) relay->Replace(*replaced);
  return absl::OkStatus();
}

void LiveStreams::Leave(const StreamRelay* relay) {
  absl::MutexLock lock(&mutex_);
  const auto open = open_.find(relay);
  if (open == open_.end()) return;
  const auto live = live_.find(open->second.key);
  if (live != live_.end() && live->second == relay) live_.erase(live);
  open_.erase(open);
}

void LiveStreams::EndAll(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
  }
  for (const auto& relay : Relays()) relay->End(status);
}

void LiveStreams::GiveUpAll() {
  for (const auto& relay : Relays()) relay->GiveUp();
}

int64_t LiveStreams::size() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(open_.size());
}

std::vector<std::shared_ptr<StreamRelay>> LiveStreams::Relays() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<StreamRelay>> relays;
  for (const auto& [key, open] : open_) {
    if (auto relay = open.relay.lock()) relays.push_back(std::move(relay));
  }
  return relays;
}

}  // namespace continuo::gateway
