// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench_report.h"

#include <regex>

#include "services/cli/client/connection.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

namespace {

// Turns "in 3.5s, up to 20ms" into "in Ns, up to Nms", so that errors that differ in numbers are
// one.
std::string WithoutNumbers(const std::string& text) {
  static const std::regex numbers("[0-9]+([.][0-9]+)*");
  return std::regex_replace(text, numbers, "N");
}

}  // namespace

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
  std::string text =
      TitledLine("requests", requests) + TitledLine("time", FormatSeconds(r.seconds));
  text += TitledLine("throughput",
                     FormatCount(PerSecond(r.output_tokens, r.seconds)) + " output tokens/s, " +
                         FormatCount(PerSecond(r.prompt_tokens, r.seconds)) + " prompt tokens/s, " +
                         FormatCount(PerSecond(r.ok, r.seconds)) + " requests/s");
  if (r.steady.seconds > 0) {
    text +=
        TitledLine("in between", FormatCount(PerSecond(r.steady.output_tokens, r.steady.seconds)) +
                                     " output tokens/s while the last " + count(r.steady.begun) +
                                     " answers began, " + FormatSeconds(r.steady.seconds));
  }
  text +=
      TitledLine("tokens", count(r.prompt_tokens) + " prompt (" + count(r.cached_prompt_tokens) +
                               " from the cache), " + count(r.output_tokens) + " output");
  if (r.migrations > 0) text += TitledLine("migrations", count(r.migrations));
  text += LatencyTitles() + LatencyRow("time to first token", r.time_to_first_token) +
          LatencyRow("between tokens", r.inter_token) + LatencyRow("whole request", r.duration);
  if (r.rejected > 0) text += LatencyRow("rejection", r.rejection);
  for (const auto& [error, times] : r.errors)
    text += TitledLine("error", count(times) + "× " + error);
  return text;
}

}  // namespace continuo::cli
