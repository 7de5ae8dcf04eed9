// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/cli/bench/workload_flags.h"
#include "services/cli/client/connection.h"
#include "services/common/flags.h"

namespace continuo::cli {

// The flags of `continuo bench`, with their defaults.
struct BenchFlags : WorkloadFlags {
  Connection connection;
  std::string model;
  uint32_t concurrency = 16;  // Of the closed loop.
  std::optional<uint64_t> requests;
  absl::Duration duration = absl::InfiniteDuration();
  uint32_t warmup = 0;
  bool trace_arrivals = true;
  double temperature = 0;
  bool ignore_eos = true;
  bool bypass_cache = false;
  uint32_t connections = 4;
  absl::Duration timeout = absl::InfiniteDuration();
  std::string json;  // A path; "-" prints the JSON instead of the table.
};

void AddBenchFlags(common::Flags& flags, BenchFlags* values);

}  // namespace continuo::cli
