// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/report_json.h"

#include <nlohmann/json.hpp>

namespace continuo::cli {

nlohmann::ordered_json TotalsJson(const ReportTotals& t) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::object();
  for (const auto& [error, times] : t.errors) errors[error] = times;
  return {{"requests",
           {{"sent", t.sent},
            {"ok", t.ok},
            {"rejected", t.rejected},
            {"failed", t.failed},
            {"errors", errors}}},
          {"tokens",
           {{"prompt", t.prompt_tokens},
            {"cached_prompt", t.cached_prompt_tokens},
            {"output", t.output_tokens}}},
          {"throughput",
           {{"output_tokens_per_second", PerSecond(t.output_tokens, t.seconds)},
            {"prompt_tokens_per_second", PerSecond(t.prompt_tokens, t.seconds)},
            {"requests_per_second", PerSecond(t.ok, t.seconds)}}}};
}

nlohmann::ordered_json ReportJson(const BenchReport& r) {
  nlohmann::ordered_json json = {{"seconds", r.seconds}};
  json.update(TotalsJson({.seconds = r.seconds,
                          .sent = r.sent,
                          .ok = r.ok,
                          .rejected = r.rejected,
                          .failed = r.failed,
                          .errors = r.errors,
                          .prompt_tokens = r.prompt_tokens,
                          .cached_prompt_tokens = r.cached_prompt_tokens,
                          .output_tokens = r.output_tokens}));
  json["requests"]["cut_to_context"] = r.cut;
  json["throughput"]["good_tokens_per_second"] = PerSecond(r.good_tokens, r.seconds);
  json["migrations"] = r.migrations;
  json["steady"] = {
      {"seconds", r.steady.seconds},
      {"begun", r.steady.begun},
      {"output_tokens", r.steady.output_tokens},
      {"output_tokens_per_second", PerSecond(r.steady.output_tokens, r.steady.seconds)}};
  json["latency_seconds"] = {{"time_to_first_token", DistributionJson(r.time_to_first_token)},
                             {"inter_token", DistributionJson(r.inter_token)},
                             {"request", DistributionJson(r.duration)},
                             {"rejection", DistributionJson(r.rejection)}};
  return json;
}

nlohmann::ordered_json ConfigJson(const BenchFlags& f, const std::string& model, bool open) {
  return {{"server", f.connection.server},
          {"model", model},
          {"loop", open ? "open" : "closed"},
          {"concurrency", f.concurrency},
          {"rate", f.rate},
          {"trace", f.trace},
          {"trace_speed", f.trace_speed},
          {"prompt_tokens", f.prompt_tokens},
          {"output_tokens", f.output_tokens},
          {"shared_prefix_tokens", f.shared_prefix_tokens},
          {"num_prefixes", f.num_prefixes},
          {"seed", f.seed},
          {"temperature", f.temperature},
          {"ignore_eos", f.ignore_eos},
          {"bypass_cache", f.bypass_cache},
          {"connections", f.connections}};
}

}  // namespace continuo::cli
