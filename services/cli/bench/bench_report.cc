// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <regex>

#include "services/cli/client/connection.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

namespace {

std::string Line(const char* title, const std::string& value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%-22s", title);
  return text + value + "\n";
}

std::string Row(const char* title, const Distribution& d) {
  char text[160];
  std::snprintf(text, sizeof(text), "%-22s%10s%10s%10s%10s%10s%10s\n", title,
                FormatSeconds(d.mean).c_str(), FormatSeconds(d.p50).c_str(),
                FormatSeconds(d.p90).c_str(), FormatSeconds(d.p95).c_str(),
                FormatSeconds(d.p99).c_str(), FormatSeconds(d.max).c_str());
  return text;
}

// Turns "in 3.5s, up to 20ms" into "in Ns, up to Nms", so that errors that differ in numbers are
// one.
std::string WithoutNumbers(const std::string& text) {
  static const std::regex numbers("[0-9]+([.][0-9]+)*");
  return std::regex_replace(text, numbers, "N");
}

}  // namespace

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

BenchReport MakeReport(const std::vector<RequestRecord>& records, double seconds) {
  BenchReport report;
  report.seconds = seconds;
  report.sent = records.size();
  std::vector<float> first, inter, whole, rejections;
  for (const RequestRecord& record : records) {
    report.prompt_tokens += record.prompt_tokens;
    report.cached_prompt_tokens += record.cached_prompt_tokens;
    report.output_tokens += record.output_tokens;
    report.migrations += record.migrations;
    if (!record.status.ok()) {
      if (absl::IsResourceExhausted(record.status)) {
        ++report.rejected;
        rejections.push_back(static_cast<float>(record.duration));
      } else {
        ++report.failed;
      }
      ++report.errors[WithoutNumbers(DescribeError(record.status))];
      continue;
    }
    ++report.ok;
    report.good_tokens += record.output_tokens;
    whole.push_back(static_cast<float>(record.duration));
    if (record.output_tokens > 0) first.push_back(static_cast<float>(record.time_to_first_token));
    inter.insert(inter.end(), record.inter_token.begin(), record.inter_token.end());
  }
  report.time_to_first_token = Summarize(std::move(first));
  report.inter_token = Summarize(std::move(inter));
  report.duration = Summarize(std::move(whole));
  report.rejection = Summarize(std::move(rejections));
  return report;
}

std::string FormatReport(const BenchReport& r) {
  const auto count = [](uint64_t n) { return std::to_string(n); };
  std::string requests = count(r.ok) + " ok";
  if (r.rejected > 0) requests += ", " + count(r.rejected) + " rejected";
  if (r.failed > 0) requests += ", " + count(r.failed) + " failed";
  if (r.cut > 0) requests += "; " + count(r.cut) + " cut to the context";
  std::string text = Line("requests", requests) + Line("time", FormatSeconds(r.seconds));
  text += Line("throughput",
               FormatCount(PerSecond(r.output_tokens, r.seconds)) + " output tokens/s, " +
                   FormatCount(PerSecond(r.prompt_tokens, r.seconds)) + " prompt tokens/s, " +
                   FormatCount(PerSecond(r.ok, r.seconds)) + " requests/s");
  if (r.steady.seconds > 0) {
    text += Line("in between", FormatCount(PerSecond(r.steady.output_tokens, r.steady.seconds)) +
                                   " output tokens/s while the last " + count(r.steady.begun) +
                                   " answers began, " + FormatSeconds(r.steady.seconds));
  }
  text += Line("tokens", count(r.prompt_tokens) + " prompt (" + count(r.cached_prompt_tokens) +
                             " from the cache), " + count(r.output_tokens) + " output");
  if (r.migrations > 0) text += Line("migrations", count(r.migrations));
  char titles[160];
  std::snprintf(titles, sizeof(titles), "%-22s%10s%10s%10s%10s%10s%10s\n", "", "mean", "p50", "p90",
                "p95", "p99", "max");
  text += titles + Row("time to first token", r.time_to_first_token) +
          Row("between tokens", r.inter_token) + Row("whole request", r.duration);
  if (r.rejected > 0) text += Row("rejection", r.rejection);
  for (const auto& [error, times] : r.errors) text += Line("error", count(times) + "× " + error);
  return text;
}

}  // namespace continuo::cli
