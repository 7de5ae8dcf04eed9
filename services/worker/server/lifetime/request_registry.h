// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/lifetime/request_control.h"

namespace continuo::server {

// Who asks for an id that may be live (exactness: migrations-first).
enum class ArrivalKind {
  kNew,                 // without a continuation: a live duplicate is refused
  kClientContinuation,  // takes a live one's place
  kMove,                // likewise, but gives way to another call that is a client's continuation
};

// The requests that live in this process and have not finished, by tenant and id. Thread-safe.
class RequestRegistry {
 public:
  // ALREADY_EXISTS or ABORTED where the newcomer has to give way; otherwise a live request of the
  // same tenant and id ends with ABORTED. `call_id` names the client's call at its gateway; "" is
  // equal to none.
  absl::Status Add(const std::string& tenant, const std::string& id, ArrivalKind kind,
                   std::shared_ptr<RequestControl> control, std::string_view call_id = "");
  // Nothing happens where another request has taken its place.
  void Remove(const std::string& tenant, const std::string& id, const RequestControl* control);
  // Ends the live request with ABORTED. False where there is none.
  bool Abort(const std::string& tenant, const std::string& id);

  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<RequestControl> control;
    bool client_continuation = false;
    std::string call_id;
  };
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::pair<std::string, std::string>, Entry> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
