// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/latency_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "services/cli/client/terminal.h"

namespace continuo::cli {

Distribution Summarize(std::vector<float> values) {
  Distribution d;
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    const double rank = std::ceil(part * static_cast<double>(values.size()));
    return static_cast<double>(values[static_cast<size_t>(std::max(rank, 1.0)) - 1]);
  };
  d.count = values.size();
  d.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(d.count);
  d.p50 = at(0.50);
  d.p90 = at(0.90);
  d.p95 = at(0.95);
  d.p99 = at(0.99);
  d.max = values.back();
  return d;
}

nlohmann::ordered_json DistributionJson(const Distribution& d) {
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50}, {"p90", d.p90},
          {"p95", d.p95},     {"p99", d.p99},   {"max", d.max}};
}

std::string TitledLine(const char* title, const std::string& value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%-22s", title);
  return text + value + "\n";
}

std::string LatencyTitles() {
  char text[160];
  std::snprintf(text, sizeof(text), "%-22s%10s%10s%10s%10s%10s%10s\n", "", "mean", "p50", "p90",
                "p95", "p99", "max");
  return text;
}

std::string LatencyRow(const char* title, const Distribution& d) {
  char text[160];
  std::snprintf(text, sizeof(text), "%-22s%10s%10s%10s%10s%10s%10s\n", title,
                FormatSeconds(d.mean).c_str(), FormatSeconds(d.p50).c_str(),
                FormatSeconds(d.p90).c_str(), FormatSeconds(d.p95).c_str(),
                FormatSeconds(d.p99).c_str(), FormatSeconds(d.max).c_str());
  return text;
}

}  // namespace continuo::cli
