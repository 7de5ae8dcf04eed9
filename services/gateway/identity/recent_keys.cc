// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/recent_keys.h"

#include "services/protocol/error.h"

namespace continuo::gateway {

std::optional<RecentKeys::Entry> RecentKeys::Find(const std::string& tenant,
                                                  const std::string& request_id) const {
  absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(Name(tenant, request_id));
  return entry == entries_.end() ? std::nullopt : std::optional<Entry>(entry->second);
}

absl::Status RecentKeys::Bind(const std::string& tenant, const std::string& request_id,
                              const CallIdentity& identity) {
  absl::MutexLock lock(&mutex_);
  const auto [entry, added] = entries_.try_emplace(
      Name(tenant, request_id),
      Entry{.body = identity.body, .reference_time = identity.reference_time, .fingerprint = ""});
  if (!added) {
    return entry->second.body == identity.body ? absl::OkStatus() : protocol::KeyReusedError();
  }
  by_age_.push_back(entry->first);
  if (by_age_.size() > max_entries_) {
    entries_.erase(by_age_.front());
    by_age_.pop_front();
  }
  return absl::OkStatus();
}

void RecentKeys::OnAnswered(const std::string& tenant, const std::string& request_id,
                            const std::string& fingerprint) {
  absl::MutexLock lock(&mutex_);
  const auto entry = entries_.find(Name(tenant, request_id));
  if (entry != entries_.end() && !fingerprint.empty()) entry->second.fingerprint = fingerprint;
}

}  // namespace continuo::gateway
