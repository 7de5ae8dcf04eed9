// SPDX-License-Identifier: Apache-2.0
#pragma once

// `continuo trace`: a worker's steps and requests for Perfetto, from its WatchSteps stream.

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/connection.h"

namespace continuo::cli {

struct TraceFlags {
  Connection connection;  // Its server is the worker.
  std::string out = "trace.json";
  absl::Duration duration = absl::Seconds(10);
  uint64_t max_bytes = uint64_t{256} << 20;
  absl::Duration timeout = absl::Seconds(5);
  TraceFlags() { connection.server = "localhost:50051"; }
};

void AddTraceFlags(common::Flags& flags, TraceFlags* values);

// Writes a whole trace whatever ends it: --duration, --max_bytes, an interrupt. Goes on when the
// worker is gone and comes back. 0; 1 where the worker did not answer in --timeout at first, says
// that it never will, or the file cannot be written; 130 where interrupted.
int RunTrace(const TraceFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
