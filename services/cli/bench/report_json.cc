// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/report_json.h"

#include <nlohmann/json.hpp>

namespace continuo::cli {

nlohmann::ordered_json ReportJson(const BenchReport& r) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::object();
  for (const auto& [error, times] : r.errors) errors[error] = times;
  return {{"seconds", r.seconds},
          {"requests",
           {{"sent", r.sent},
            {"ok", r.ok},
            {"rejected", r.rejected},
            {"failed", r.failed},
            {"cut_to_context", r.cut},
            {"errors", errors}}},
          {"tokens",
           {{"prompt", r.prompt_tokens},
            {"cached_prompt", r.cached_prompt_tokens},
            {"output", r.output_tokens}}},
          {"migrations", r.migrations},
          {"throughput",
           {{"output_tokens_per_second", PerSecond(r.output_tokens, r.seconds)},
            {"good_tokens_per_second", PerSecond(r.good_tokens, r.seconds)},
            {"prompt_tokens_per_second", PerSecond(r.prompt_tokens, r.seconds)},
            {"requests_per_second", PerSecond(r.ok, r.seconds)}}},
          {"steady",
           {{"seconds", r.steady.seconds},
            {"begun", r.steady.begun},
            {"output_tokens", r.steady.output_tokens},
            {"output_tokens_per_second", PerSecond(r.steady.output_tokens, r.steady.seconds)}}},
          {"latency_seconds",
           {{"time_to_first_token", DistributionJson(r.time_to_first_token)},
            {"inter_token", DistributionJson(r.inter_token)},
            {"request", DistributionJson(r.duration)},
            {"rejection", DistributionJson(r.rejection)}}}};
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
