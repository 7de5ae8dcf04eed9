// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/gateway/identity/idempotency.h"

namespace continuo::gateway {

// Remembers the latest generations of this gateway that have an idempotency key. Nothing depends on
// it but an error that a client would otherwise not get, a time of day, and a header:
// other gateways, and this one after a restart, know nothing of it. Thread-safe.
class RecentKeys {
 public:
  struct Entry {
    std::string body;  // the digest of the request
    absl::Time reference_time;
    std::string fingerprint;  // of the worker that answered; empty before
  };
  // The oldest entries beyond `max_entries` are forgotten.
  explicit RecentKeys(size_t max_entries = 16384) : max_entries_(max_entries) {}

  std::optional<Entry> Find(const std::string& tenant, const std::string& request_id) const;
  // Remembers the identity. ALREADY_EXISTS, with a reason, if that is known with another body.
  absl::Status Bind(const std::string& tenant, const std::string& request_id,
                    const CallIdentity& identity);
  // A generation, perhaps without a key, was answered by a worker of this fingerprint.
  void OnAnswered(const std::string& tenant, const std::string& request_id,
                  const std::string& fingerprint);

 private:
  using Name = std::pair<std::string, std::string>;

  const size_t max_entries_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Name, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<Name> by_age_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
