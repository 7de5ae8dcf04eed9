// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway {

// The streams of Generate that are open, of which each request has one that is live. Thread-safe.
class LiveStreams {
 public:
  // The tenant and the id of a request.
  using RequestKey = std::pair<std::string, std::string>;

  // Enters a relay that has been admitted and not begun; it replaces one of the same key if it is a
  // continuation. ALREADY_EXISTS if it is none, or the status of EndAll.
  absl::Status Enter(const std::shared_ptr<StreamRelay>& relay, RequestKey key,
                     bool is_continuation);
  // The relay has ended.
  void Leave(const StreamRelay* relay);

  // Ends all with `status`, an error, each after the write that is in flight to its client. No
  // other one enters.
  void EndAll(const absl::Status& status);
  // After EndAll: those whose clients have not read their end report it, and are waited for no
  // longer.
  void GiveUpAll();
  int64_t size() const;

 private:
  struct OpenRelay {
    std::weak_ptr<StreamRelay> relay;
    RequestKey key;
  };
  std::vector<std::shared_ptr<StreamRelay>> Relays() const;

  mutable absl::Mutex mutex_;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);  // OK until EndAll.
  absl::flat_hash_map<const StreamRelay*, OpenRelay> open_ ABSL_GUARDED_BY(mutex_);
  // The relay that runs for each key; where several did, the one that replaced the others.
  absl::flat_hash_map<RequestKey, const StreamRelay*> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
