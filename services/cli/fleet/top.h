// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command `continuo top` shows a worker's batch, live, from its WatchSteps stream.

#include <cstdint>

#include "absl/time/time.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

// The flags of the command, with their defaults.
struct TopFlags {
  Connection connection;  // The server is the worker.
  absl::Duration interval = absl::Milliseconds(250);
  absl::Duration timeout = absl::Seconds(5);
  uint64_t frames = 0;  // 0 runs until interrupted.
  TopFlags() { connection.server = "localhost:50051"; }
};

void AddTopFlags(common::Flags& flags, TopFlags* values);

// Runs the command. On a terminal it draws over the whole screen and restores it at the end;
// elsewhere each picture follows the last one after an empty line. It goes on while the worker is
// gone. Returns the exit code: 0 after --frames; 1 where the worker did not answer in --timeout at
// first, or never will; 130 where interrupted.
int RunTop(const TopFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
