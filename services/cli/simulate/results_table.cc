// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/results_table.h"

#include <cstdio>

#include "services/cli/bench/bench_report.h"
#include "services/cli/bench/report_json.h"
#include "services/cli/client/terminal.h"
#include "services/cli/simulate/scaling_report.h"

namespace continuo::cli {
namespace {

using simulate::LatencyHistogram;

Distribution DistributionOf(const LatencyHistogram& h) {
  return {.count = h.count(),
          .mean = h.mean(),
          .p50 = h.Percentile(0.5),
          .p90 = h.Percentile(0.9),
          .p95 = h.Percentile(0.95),
          .p99 = h.Percentile(0.99),
          .max = h.max()};
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %%", 100 * share);
  return text;
}

}  // namespace

std::string FormatResults(const simulate::Results& r) {
  const double seconds = absl::ToDoubleSeconds(r.duration);
  const auto count = [](uint64_t n) { return std::to_string(n); };
  std::string requests = count(r.ok) + " ok";
  if (r.rejected > 0) requests += ", " + count(r.rejected) + " rejected";
  if (r.failed > 0) requests += ", " + count(r.failed) + " failed";
  std::string text =
      TitledLine("fleet", std::to_string(r.workers) +
                              (r.scaling.empty() ? " workers, " : " workers at the begin, ") +
                              std::to_string(r.gateways) +
                              (r.gateways == 1 ? " gateway" : " gateways")) +
      TitledLine("requests", requests) + TitledLine("time", FormatSeconds(seconds) + " simulated");
  text += TitledLine("throughput",
                     FormatCount(PerSecond(r.output_tokens, seconds)) + " output tokens/s, " +
                         FormatCount(PerSecond(r.prompt_tokens, seconds)) + " prompt tokens/s, " +
                         FormatCount(PerSecond(r.ok, seconds)) + " requests/s");
  text +=
      TitledLine("tokens", count(r.prompt_tokens) + " prompt (" + count(r.cached_prompt_tokens) +
                               " from the cache), " + count(r.output_tokens) + " output");
  if (r.migrations > 0) text += TitledLine("migrations", count(r.migrations));
  char batch[32];
  std::snprintf(batch, sizeof(batch), "%.1f", r.running);
  text += TitledLine("workers", Percent(r.busy) + " busy, the busiest " + Percent(r.busiest) +
                                    ", KV cache " + Percent(r.kv_used) + " used, " + batch +
                                    " sequences, " + count(r.preemptions) + " preemptions");
  text += FormatScaling(r);
  text += LatencyTitles() +
          LatencyRow("time to first token", DistributionOf(r.time_to_first_token)) +
          LatencyRow("between tokens", DistributionOf(r.inter_token)) +
          LatencyRow("whole request", DistributionOf(r.whole));
  for (const auto& [error, times] : r.errors) {
    text += TitledLine("error", count(times) + "× " + error);
  }
  return text;
}

nlohmann::ordered_json ResultsJson(const simulate::Results& r) {
  const double seconds = absl::ToDoubleSeconds(r.duration);
  nlohmann::ordered_json json = {
      {"workers", r.workers}, {"gateways", r.gateways}, {"seconds", seconds}};
  json.update(TotalsJson({.seconds = seconds,
                          .sent = r.sent,
                          .ok = r.ok,
                          .rejected = r.rejected,
                          .failed = r.failed,
                          .errors = r.errors,
                          .prompt_tokens = r.prompt_tokens,
                          .cached_prompt_tokens = r.cached_prompt_tokens,
                          .output_tokens = r.output_tokens}));
  json["migrations"] = r.migrations;
  json["preemptions"] = r.preemptions;
  json["steps"] = r.steps;
  json["occupancy"] = {{"busy", r.busy},
                       {"busiest", r.busiest},
                       {"kv_used", r.kv_used},
                       {"running_sequences", r.running}};
  json["latency_seconds"] = {
      {"time_to_first_token", DistributionJson(DistributionOf(r.time_to_first_token))},
      {"inter_token", DistributionJson(DistributionOf(r.inter_token))},
      {"request", DistributionJson(DistributionOf(r.whole))}};
  json["worker_hours"] = absl::ToDoubleHours(r.worker_time);
  if (!r.scaling.empty()) json["scaling"] = ScalingJson(r);
  return json;
}

}  // namespace continuo::cli
