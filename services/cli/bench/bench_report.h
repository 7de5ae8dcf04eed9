// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a bench measured, request by request, and its summary as table and JSON.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace continuo::cli {

// One request. Times in seconds.
struct RequestRecord {
  absl::Status status;
  double time_to_first_token = 0;  // From sending the request; only where a token came.
  double duration = 0;
  // For every token but the first: the gap between responses, divided evenly among the tokens
  // that came together.
  std::vector<float> inter_token;
  uint64_t prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;
  uint64_t output_tokens = 0;
  uint32_t migrations = 0;
};

struct Distribution {
  uint64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// Nearest rank: the smallest value that at least that part of the values does not exceed.
Distribution Summarize(std::vector<float> values);

// Of a closed loop, without its beginning and its end: from when as many answers have begun as run
// at a time until the last one begins, `begun` answers later. Zeros where no more than those run.
struct SteadyState {
  double seconds = 0;
  uint64_t begun = 0;
  uint64_t output_tokens = 0;
};

struct BenchReport {
  double seconds = 0;  // From the first request sent to the last answer.
  uint64_t sent = 0;
  uint64_t ok = 0;
  uint64_t shed = 0;                       // RESOURCE_EXHAUSTED
  uint64_t failed = 0;                     // The rest.
  uint64_t cut = 0;                        // Made shorter to fit into the context.
  std::map<std::string, uint64_t> errors;  // How often each was told, without its numbers.
  uint64_t prompt_tokens = 0, cached_prompt_tokens = 0, output_tokens = 0, migrations = 0;
  uint64_t good_tokens = 0;                                 // Output of requests that ended well.
  Distribution time_to_first_token, inter_token, duration;  // Of requests that ended well.
  SteadyState steady;
  Distribution refusal;  // Until a request was shed.
};

// Tokens of failed requests count as output, their times do not.
BenchReport MakeReport(const std::vector<RequestRecord>& records, double seconds);

std::string FormatReport(const BenchReport& report);
nlohmann::ordered_json ReportJson(const BenchReport& report);

}  // namespace continuo::cli
