// SPDX-License-Identifier: Apache-2.0
#pragma once

// The command `continuo fleet` shows a table of workers, from the WatchLoad stream of each.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

// The flags of the command, with their defaults.
struct FleetFlags {
  Connection connection;  // The server is not used.
  std::vector<std::string> workers = {"localhost:50051"};
  bool watch = false;
  bool json = false;
  absl::Duration interval = absl::Seconds(1);
  absl::Duration timeout = absl::Seconds(5);
};

void AddFleetFlags(common::Flags& flags, FleetFlags* values);

// The state of one address: its last report of each model, or the error where there is none.
struct WorkerRow {
  std::string address;
  std::map<std::string, v1::WatchLoadResponse> loads;
  absl::Status status;
};

// Formats a line for each worker and model under a line of titles, with totals below where there
// are several.
std::string FormatFleet(const std::vector<WorkerRow>& rows);
// Formats an object whose "workers" is an array with an object for each worker and model.
std::string FormatFleetJson(const std::vector<WorkerRow>& rows);

// Expands a list of addresses: dns:///NAME:PORT stands for every address of the name. Errors name
// the entry.
absl::StatusOr<std::vector<std::string>> ResolveWorkers(const std::vector<std::string>& workers);

// Runs the command. Returns the exit code: 0, 1 where a worker did not answer, 130 where
// interrupted.
int RunFleet(const FleetFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
