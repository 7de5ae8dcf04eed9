// SPDX-License-Identifier: Apache-2.0
#pragma once

// The measurements of a bench, request by request, and their summary.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/cli/bench/latency_table.h"

namespace continuo::cli {

// The measurements of one request. Times are in seconds.
struct RequestRecord {
  absl::Status status;
  double time_to_first_token = 0;  // From sending the request. Only set where a token came.
  double duration = 0;
  // For every token but the first, the gap between responses, divided evenly among the tokens that
  // came together.
  std::vector<float> inter_token;
  uint64_t prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;
  uint64_t output_tokens = 0;
  uint32_t migrations = 0;
};

// The part of a closed loop without its beginning and its end: from when as many answers have begun
// as run at a time, until the last answer begins. All 0 where no more requests than those ran.
struct SteadyState {
  double seconds = 0;
  uint64_t begun = 0;  // Answers that began in it.
  uint64_t output_tokens = 0;
};

// The results of a bench. Times are in seconds.
struct BenchReport {
  double seconds = 0;  // From the first request sent to the last answer.
  uint64_t sent = 0;
  uint64_t ok = 0;
  uint64_t rejected = 0;  // Ended with RESOURCE_EXHAUSTED.
  uint64_t failed = 0;    // Ended with any other error.
  uint64_t cut = 0;       // Shortened to fit into the context.
  // The number of times of each error, with its numbers replaced by N.
  std::map<std::string, uint64_t> errors;
  uint64_t prompt_tokens = 0, cached_prompt_tokens = 0, output_tokens = 0, migrations = 0;
  uint64_t good_tokens = 0;                                 // Output of successful requests.
  Distribution time_to_first_token, inter_token, duration;  // Of successful requests.
  SteadyState steady;
  Distribution rejection;  // The time until a request was rejected.
};

// Summarizes the records. Tokens of failed requests count as output; their times do not count.
BenchReport MakeReport(const std::vector<RequestRecord>& records, double seconds);

// 0 where no time has passed.
double PerSecond(uint64_t count, double seconds);

// Formats the report as a table.
std::string FormatReport(const BenchReport& report);

}  // namespace continuo::cli
