// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace continuo::server {

// Ends one request from outside, also while the engine does not have it yet, and its call where
// that does not end by itself. Thread-safe.
class RequestControl {
 public:
  struct Hooks {
    // Ends the request in the engine.
    std::function<void(absl::Status)> cancel;
    // Ends the call at once, whatever it waits for; nothing where it has ended.
    std::function<void(const absl::Status&)> cut;
  };
  explicit RequestControl(Hooks hooks) : hooks_(std::move(hooks)) {}

  // The first reason counts.
  void End(absl::Status why);
  // The engine has the request; passes on an end that came before.
  void Submitted();
  // Why it was ended, if it was.
  std::optional<absl::Status> reason() const;

  // True once, when `patience` has passed since the first call of this after End(). `now` is of a
  // clock that never goes back.
  bool Overdue(absl::Duration now, absl::Duration patience);
  // Cuts the call with the reason that it was ended for. Only after End().
  void Cut() const;

 private:
  const Hooks hooks_;
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);
  bool submitted_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Duration> ending_since_ ABSL_GUARDED_BY(mutex_);
  bool overdue_told_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::server
