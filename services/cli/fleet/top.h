// SPDX-License-Identifier: Apache-2.0
#pragma once

// `continuo top`: a worker's batch, live, from its WatchSteps stream.

#include <cstdint>

#include "absl/time/time.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/connection.h"

namespace continuo::cli {

struct TopFlags {
  Connection connection;  // Its server is the worker.
  absl::Duration interval = absl::Milliseconds(250);
  absl::Duration timeout = absl::Seconds(5);
  uint64_t frames = 0;  // 0: until interrupted.
  TopFlags() { connection.server = "localhost:50051"; }
};

void AddTopFlags(common::Flags& flags, TopFlags* values);

// On a terminal it draws over the whole screen, which is as before at the end; elsewhere each
// picture follows the last one after an empty line. Goes on when the worker is gone, and with it
// when it is back. 0 after --frames; 1 where the worker did not answer in --timeout at first, or
// says that it never will; 130 where interrupted.
int RunTop(const TopFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
