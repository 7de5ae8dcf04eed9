// SPDX-License-Identifier: Apache-2.0
#pragma once

// A child process with bounds, run without a shell.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

struct CommandLimits {
  uint64_t max_bytes = 64 << 10;  // The limit of each of its two streams.
  absl::Duration timeout = absl::Seconds(30);
};

struct CommandResult {
  // kCut: its output reached max_bytes. kTimeout and kCut end it.
  enum class End { kExit, kSignal, kTimeout, kCut };
  End end = End::kExit;
  int code = 0;                 // The exit status, or the signal.
  std::string output, message;  // Its standard output and standard error; any bytes.
};

// Runs a program, looked up in PATH, with `input` as its standard input, and waits for its end.
// What it began and left running ends with it. The environment and the working directory are those
// of this process. Returns an error where it cannot be started, and CANCELLED after an interrupt,
// which ends it. Called by one thread at a time.
absl::StatusOr<CommandResult> RunCommand(const std::vector<std::string>& command,
                                         const std::string& input, const CommandLimits& limits,
                                         Interrupt& interrupt);

}  // namespace continuo::cli
