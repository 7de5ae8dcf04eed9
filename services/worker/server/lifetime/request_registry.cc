// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/request_registry.h"

#include "services/protocol/error.h"

namespace continuo::server {

absl::Status RequestRegistry::Add(const std::string& tenant, const std::string& id,
                                  ArrivalKind kind, std::shared_ptr<RequestControl> control,
                                  const ArrivalMarks& marks) {
  bool client_continuation = kind == ArrivalKind::kClientContinuation;
  std::shared_ptr<RequestControl> replaced;
  {
    absl::MutexLock lock(&mutex_);
    Entry& entry = live_[{tenant, id}];
    if (entry.control != nullptr) {
      if (!marks.body.empty() && !entry.marks.body.empty() && marks.body != entry.marks.body) {
        return protocol::KeyReusedError();
      }
      if (kind == ArrivalKind::kNew) {
        return absl::AlreadyExistsError("a request of this request_id is live");
      }
      if (kind == ArrivalKind::kMigration && entry.client_continuation) {
        // The same call comes back if its gateway had given this worker up during a pause.
        client_continuation = !marks.call_id.empty() && marks.call_id == entry.marks.call_id;
        if (!client_continuation) {
          return protocol::WithReason(
              absl::AbortedError("the client has gone on with this request itself"),
              protocol::kReasonAborted);
        }
      }
      replaced = std::move(entry.control);
    }
    entry = {std::move(control), client_continuation, marks};
  }
  if (replaced != nullptr) {
    replaced->End(protocol::WithReason(
        absl::AbortedError("replaced by a continuation of the same request_id"),
        protocol::kReasonAborted));
  }
  return absl::OkStatus();
}

void RequestRegistry::Remove(const std::string& tenant, const std::string& id,
                             const RequestControl* control) {
  absl::MutexLock lock(&mutex_);
  const auto it = live_.find({tenant, id});
  if (it != live_.end() && it->second.control.get() == control) live_.erase(it);
}

bool RequestRegistry::Abort(const std::string& tenant, const std::string& id) {
  std::shared_ptr<RequestControl> control;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = live_.find({tenant, id});
    if (it == live_.end()) return false;
    control = it->second.control;
  }
  control->End(
      protocol::WithReason(absl::AbortedError("aborted by an operator"), protocol::kReasonAborted));
  return true;
}

size_t RequestRegistry::size() const {
  absl::MutexLock lock(&mutex_);
  return live_.size();
}

}  // namespace continuo::server
