// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace continuo::gateway::openai {

// An answer that others may ask for while it is made. Not thread-safe.
class Retrievable {
 public:
  virtual ~Retrievable() = default;

  // How the answer ended. `error` is the body that an error of HTTP would have.
  struct Ending {
    absl::Status status;
    std::string error;
  };
  struct Events {
    std::string text;
    int64_t next = 0;      // the number of the event behind them
    bool is_last = false;  // there is none
  };

  // The answer so far as one body with this status.
  virtual std::string Snapshot(std::string_view status) const = 0;
  // The first event that EventsFrom can tell: events before it were another run's.
  virtual int64_t first_event() const = 0;
  // The events from number `first` on, as a stream has them but without ids, up to the one that
  // passes `max_bytes`. With an ending also those of that, whatever their size.
  virtual Events EventsFrom(int64_t first, const Ending* ending, size_t max_bytes) const = 0;
};

}  // namespace continuo::gateway::openai
