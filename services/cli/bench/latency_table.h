// SPDX-License-Identifier: Apache-2.0
#pragma once

// Latencies of many requests, and the lines of the tables that bench and simulate print of them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace continuo::cli {

// A summary of values; percentiles are by nearest rank.
struct Distribution {
  uint64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// The percentile p is the smallest value that at least p % of the values do not exceed.
Distribution Summarize(std::vector<float> values);
nlohmann::ordered_json DistributionJson(const Distribution& distribution);

// One line: a title in a column of its own, and the value.
std::string TitledLine(const char* title, const std::string& value);
// The titles of the columns of LatencyRow, whose values are in seconds.
std::string LatencyTitles();
std::string LatencyRow(const char* title, const Distribution& seconds);

}  // namespace continuo::cli
