// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/cli/client/connection.h"
#include "services/common/flags.h"

namespace continuo::cli {

// The flags of `continuo bench`, with their defaults.
struct BenchFlags {
  Connection connection;
  std::string model;
  uint32_t concurrency = 16;  // Of the closed loop.
  double rate = 0;            // Of the open loop; 0 is a closed loop.
  std::optional<uint64_t> requests;
  absl::Duration duration = absl::InfiniteDuration();
  uint32_t warmup = 0;
  std::string prompt_tokens = "128", output_tokens = "128";
  std::string trace;
  double trace_speed = 1;
  bool trace_arrivals = true;
  uint32_t shared_prefix_tokens = 0, num_prefixes = 1;
  uint64_t seed = 0;
  double temperature = 0;
  bool ignore_eos = true;
  bool bypass_cache = false;
  uint32_t connections = 4;
  absl::Duration timeout = absl::InfiniteDuration();
  std::string json;  // A path; "-" prints the JSON instead of the table.
};

void AddBenchFlags(common::Flags& flags, BenchFlags* values);

}  // namespace continuo::cli
