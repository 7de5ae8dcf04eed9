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

// Ends one request from outside, also before the engine has it, and cuts its call if that does not
// end by itself. Thread-safe.
class RequestControl {
 public:
  struct Hooks {
    // Ends the request in the engine, or where it waits for what it needs.
    std::function<void(absl::Status)> cancel;
    // Ends the call at once, whatever it waits for; does nothing if it has ended.
    std::function<void(const absl::Status&)> cut;
  };
  explicit RequestControl(Hooks hooks) : hooks_(std::move(hooks)) {}

  // Ends the request with `why`; only the first call has an effect.
  void End(absl::Status why);
  // Called when the engine has the request, and before that when it waits where `cancel` ends it;
  // passes on an end that came before.
  void Submitted();
  // The status that it was ended with, if it was.
  std::optional<absl::Status> reason() const;

  // Returns true once: when `patience` has passed since the first call of this method after End().
  // `now` is of a clock that never goes back.
  bool Overdue(absl::Duration now, absl::Duration patience);
  // Cuts the call with the status that it was ended with. Called only after End().
  void Cut() const;

 private:
  const Hooks hooks_;
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> why_ ABSL_GUARDED_BY(mutex_);
  bool submitted_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Duration> ending_since_ ABSL_GUARDED_BY(mutex_);
  bool overdue_reported_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::server
