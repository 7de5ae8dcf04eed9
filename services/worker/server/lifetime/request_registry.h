// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/lifetime/request_control.h"

namespace continuo::server {

// The kind of a request whose id may be live already (exactness: migrations-first).
enum class ArrivalKind {
  kNew,                 // has no continuation; rejected while another of its id is live
  kClientContinuation,  // replaces a live one
  kMigration,           // replaces a live one, except a client's continuation of another call
};

// A request has these marks in its metadata beside its id. An empty mark equals no other.
struct ArrivalMarks {
  std::string call_id;  // names the client's call at its gateway
  std::string body;     // the digest of the request
};

// The live requests of this process, those that have not finished, by tenant and id. Thread-safe.
class RequestRegistry {
 public:
  // Returns ALREADY_EXISTS or ABORTED if the newcomer is rejected; otherwise a live request of the
  // same tenant and id ends with ABORTED. Whatever its kind, the newcomer is rejected where the
  // body of the live one is another.
  absl::Status Add(const std::string& tenant, const std::string& id, ArrivalKind kind,
                   std::shared_ptr<RequestControl> control, const ArrivalMarks& marks = {});
  // Does nothing if another request has taken its place.
  void Remove(const std::string& tenant, const std::string& id, const RequestControl* control);
  // Ends the live request with ABORTED. Returns false if there is none.
  bool Abort(const std::string& tenant, const std::string& id);

  size_t size() const;

 private:
  struct Entry {
    std::shared_ptr<RequestControl> control;
    bool client_continuation = false;
    ArrivalMarks marks;
  };
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::pair<std::string, std::string>, Entry> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
