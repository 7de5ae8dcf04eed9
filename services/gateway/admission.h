// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace continuo::gateway {

struct AdmissionLimits {
  int64_t max_open_requests = 20000;
  // Memory that open requests may take together, in bytes of the wire format.
  int64_t max_open_bytes = int64_t{1} << 30;
  // Prompt tokens, estimated, of requests that have not begun to answer.
  int64_t max_queued_tokens = int64_t{1} << 22;
};

// How many requests may be open, decided before any work. Thread-safe; outlives its tickets.
class Admission {
 public:
  // One admitted request; gives everything back when destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Release(); }
    // The answer has begun: the prompt is no longer queued. Further calls do nothing.
    void MarkStarted();

   private:
    friend class Admission;
    Ticket(Admission* admission, int64_t bytes, int64_t tokens)
        : admission_(admission), bytes_(bytes), queued_tokens_(tokens) {}
    void Release();

    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
    int64_t queued_tokens_ = 0;
    bool queued_ = true;
  };

  struct Counts {
    int64_t open_requests = 0, open_bytes = 0, queued_requests = 0, queued_tokens = 0;
  };

  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED, reason OVERLOADED, with RetryInfo, naming the limit. A request larger than
  // max_queued_tokens is taken where nothing else is queued.
  absl::StatusOr<Ticket> Admit(int64_t bytes, int64_t tokens);
  Counts counts() const;

 private:
  const AdmissionLimits limits_;
  mutable absl::Mutex mutex_;
  Counts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway
