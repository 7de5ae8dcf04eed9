// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/live/live_responses.h"

namespace continuo::gateway::openai {

LiveResponses::Entry::Entry(LiveResponses* all, std::string tenant, std::string id,
                            std::shared_ptr<LiveResponse> response)
    : all_(all), name_(std::move(tenant), std::move(id)), response_(std::move(response)) {
  absl::MutexLock lock(&all_->mutex_);
  all_->responses_[name_] = response_;
}

LiveResponses::Entry::~Entry() { End(absl::CancelledError("the client of the response left"), ""); }

void LiveResponses::Entry::End(const absl::Status& status, std::string error) {
  {
    absl::MutexLock lock(&all_->mutex_);
    const auto listed = all_->responses_.find(name_);
    if (listed != all_->responses_.end() && listed->second == response_) {
      all_->responses_.erase(listed);
    }
  }
  response_->End(status, std::move(error));
}

std::unique_ptr<LiveResponse::Reader> LiveResponses::Find(const std::string& tenant,
                                                          const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto listed = responses_.find(Name(tenant, id));
  if (listed == responses_.end()) return nullptr;
  return std::make_unique<LiveResponse::Reader>(listed->second);
}

}  // namespace continuo::gateway::openai
