// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/workload_flags.h"

#include <limits>

#include "services/base/status_macros.h"

namespace continuo::cli {

void AddWorkloadFlags(common::Flags& flags, WorkloadFlags* v) {
  flags.Number(
      "rate", &v->rate, 0, 1e6,
      "Requests per second of an open loop, at random times (Poisson), however many are in "
      "flight. 0 is a closed loop.");
  flags.Text("prompt_tokens", &v->prompt_tokens,
             "Lengths of prompts in tokens: N, uniform:MIN:MAX or exponential:MEAN.");
  flags.Text("output_tokens", &v->output_tokens,
             "Lengths of answers in tokens: N, uniform:MIN:MAX or exponential:MEAN.");
  flags.Text(
      "trace", &v->trace,
      "File whose requests are sent instead: CSV or JSON lines with prompt and output tokens, "
      "and optionally arrivals.");
  flags.Number("trace_speed", &v->trace_speed, 1e-6, 1e6,
               "Factor by which the arrivals of the trace are sped up.");
  flags.Integer("shared_prefix_tokens", &v->shared_prefix_tokens, 0u, 1u << 24,
                "Number of tokens of a shared prefix, added in front of every prompt.");
  flags.Integer("num_prefixes", &v->num_prefixes, 1u, 1u << 24,
                "Number of different shared prefixes.");
  flags.Integer("seed", &v->seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(),
                "Seed of prompts, lengths, arrivals and sampling.");
}

absl::StatusOr<WorkloadOptions> MakeWorkloadOptions(const WorkloadFlags& flags) {
  WorkloadOptions options;
  ASSIGN_OR_RETURN(options.prompt, LengthDistribution::Parse(flags.prompt_tokens));
  ASSIGN_OR_RETURN(options.output, LengthDistribution::Parse(flags.output_tokens));
  if (!flags.trace.empty()) {
    ASSIGN_OR_RETURN(options.trace, LoadTrace(flags.trace));
  }
  options.seed = flags.seed;
  options.rate = flags.rate;
  options.trace_speed = flags.trace_speed;
  options.shared_prefix_tokens = flags.shared_prefix_tokens;
  options.num_prefixes = flags.num_prefixes;
  return options;
}

}  // namespace continuo::cli
