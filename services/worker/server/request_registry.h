// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace continuo {

// Ends one request from outside, also while the engine does not have it yet. Thread-safe.
class RequestControl {
 public:
  // `cancel` ends the request in the engine.
  explicit RequestControl(std::function<void(absl::Status)> cancel) : cancel_(std::move(cancel)) {}

  // The first reason counts.
  void End(absl::Status why);
  // The engine has the request; passes on an end that came before.
  void Submitted();
  // Why it was ended, if it was.
  std::optional<absl::Status> reason() const;

 private:
  const std::function<void(absl::Status)> cancel_;
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);
  bool submitted_ ABSL_GUARDED_BY(mutex_) = false;
};

// Who asks for an id that may be live (exactness rule 12).
enum class ArrivalKind {
  kNew,                 // without a continuation: a live duplicate is refused
  kClientContinuation,  // takes a live one's place
  kMove,                // likewise, but gives way to a client's continuation
};

// The requests that live in this process, by tenant and id. Thread-safe.
class RequestRegistry {
 public:
  // ALREADY_EXISTS or ABORTED where the newcomer has to give way; otherwise a live request of the
  // same tenant and id ends with ABORTED.
  absl::Status Add(const std::string& tenant, const std::string& id, ArrivalKind kind,
                   std::shared_ptr<RequestControl> control);
  // Nothing happens where another request has taken its place.
  void Remove(const std::string& tenant, const std::string& id, const RequestControl* control);
  // Ends the live request with ABORTED. False where there is none.
  bool Abort(const std::string& tenant, const std::string& id);

  size_t size() const;
  std::vector<std::shared_ptr<RequestControl>> All() const;

 private:
  struct Entry {
    std::shared_ptr<RequestControl> control;
    bool client_continuation = false;
  };
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::pair<std::string, std::string>, Entry> live_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo
