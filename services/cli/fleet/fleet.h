// SPDX-License-Identifier: Apache-2.0
#pragma once

// `continuo fleet`: a table of workers, from the WatchLoad stream of each.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/connection.h"

namespace continuo::cli {

struct FleetFlags {
  Connection connection;  // Its server is not used.
  std::vector<std::string> workers = {"localhost:50051"};
  bool watch = false;
  bool json = false;
  absl::Duration interval = absl::Seconds(1);
  absl::Duration timeout = absl::Seconds(5);
};

void AddFleetFlags(common::Flags& flags, FleetFlags* values);

// What is known of one address: its last report for each model, or why there is none.
struct WorkerRow {
  std::string address;
  std::map<std::string, v1::WatchLoadResponse> loads;
  absl::Status status;
};

// One line for each worker and model, under a line of titles; sums below where there are several.
std::string FormatFleet(const std::vector<WorkerRow>& rows);
// An object with "workers": an array with one object for each.
std::string FormatFleetJson(const std::vector<WorkerRow>& rows);

// The addresses that a list means: dns:///NAME:PORT stands for every address of the name.
absl::StatusOr<std::vector<std::string>> ResolveWorkers(const std::vector<std::string>& workers);

// 0; 1 where a worker did not answer.
int RunFleet(const FleetFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
