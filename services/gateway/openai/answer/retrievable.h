// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Tells the events of one answer, as a stream has them but without ids, in the order in which
  // they come. The answer outlives it.
  class Teller {
   public:
    virtual ~Teller() = default;
    // Appends the events since the last call; with an ending also those of that, once. The time
    // goes with what is new.
    virtual void Tell(const Ending* ending, std::string* events) = 0;
    // The memory that it takes.
    virtual size_t num_bytes() const = 0;
  };

  // The answer so far as one body with this status.
  virtual std::string Snapshot(std::string_view status) const = 0;
  // The number of the first event that a teller tells: events before it were another run's.
  virtual int64_t first_event() const = 0;
  virtual std::unique_ptr<Teller> MakeTeller() const = 0;
};

}  // namespace continuo::gateway::openai
