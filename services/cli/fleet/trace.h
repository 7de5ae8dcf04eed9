// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command `continuo trace` writes a worker's steps and requests for Perfetto, from its
// WatchSteps stream.

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

// The flags of the command, with their defaults.
struct TraceFlags {
  Connection connection;  // The server is the worker.
  std::string out = "trace.json";
  std::string cost;  // A path; empty: none is written.
  absl::Duration duration = absl::Seconds(10);
  uint64_t max_bytes = uint64_t{256} << 20;
  absl::Duration timeout = absl::Seconds(5);
  TraceFlags() { connection.server = "localhost:50051"; }
};

void AddTraceFlags(common::Flags& flags, TraceFlags* values);

// Runs the command. The trace is complete whether --duration, --max_bytes or an interrupt ends it.
// It goes on while the worker is gone. Returns the exit code: 0; 1 where the worker did not answer
// in
// --timeout at first, never will, or the file cannot be written; 130 where interrupted.
int RunTrace(const TraceFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
