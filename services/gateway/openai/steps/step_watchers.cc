// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_watchers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

absl::StatusOr<std::unique_ptr<StepWatchers::Place>> StepWatchers::Enter(
    const std::string& tenant, std::shared_ptr<StepQueue> queue) {
  absl::MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  const int all = static_cast<int>(queues_.size());
  const auto at = num_of_tenant_.find(tenant);
  const int own = at == num_of_tenant_.end() ? 0 : at->second;
  const int most = std::max((max_watchers_ - (all - own)) * 4 / 5, 1);
  if (all >= max_watchers_ || own >= most) {
    return protocol::OverloadedError(
        absl::StrCat("steps are watched by ", all, " already, ", own, " of this tenant; the limit ",
                     "is ", max_watchers_, ", and four fifths of what others leave for a tenant"));
  }
  ++num_of_tenant_[tenant];
  queues_.push_back(std::move(queue));
  return std::make_unique<Place>(this, tenant, std::prev(queues_.end()));
}

void StepWatchers::Leave(const std::string& tenant, Queues::iterator queue) {
  absl::MutexLock lock(&mutex_);
  queues_.erase(queue);
  const auto at = num_of_tenant_.find(tenant);
  if (--at->second == 0) num_of_tenant_.erase(at);
}

void StepWatchers::EndAll(const absl::Status& status) {
  Queues queues;
  {
    absl::MutexLock lock(&mutex_);
    ended_ = status;
    queues = queues_;
  }
  for (const auto& queue : queues) queue->OnEnd(status);
}

}  // namespace continuo::gateway::openai
