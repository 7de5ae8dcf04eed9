// SPDX-License-Identifier: Apache-2.0
#pragma once

// `continuo bench`: drives load, in a closed loop or at times of its own, and reports.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "services/cli/bench/workload.h"
#include "services/cli/client/answer.h"
#include "services/cli/client/connection.h"

namespace continuo::cli {

struct BenchFlags {
  Connection connection;
  std::string model;
  uint32_t concurrency = 16;  // Closed loop.
  double rate = 0;            // Open loop, where above 0.
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
  std::string json;  // A file; "-" is the output, instead of the table.
};

void AddBenchFlags(common::Flags& flags, BenchFlags* values);

// 0; 1 where a request failed (shed ones do not count) or none ended well; 130 where interrupted,
// with the report of what was measured until then.
int RunBench(const BenchFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
