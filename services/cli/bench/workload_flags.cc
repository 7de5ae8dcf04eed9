// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/workload_flags.h"

#include <limits>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::cli {
namespace {

constexpr double kBursty = 4, kMostBursty = 20;

// Sets what --trace says: a file's rows, or how the requests of --rate arrive.
absl::Status SetTrace(const WorkloadFlags& flags, WorkloadOptions* options) {
  const std::string& trace = flags.trace;
  const bool is_bursty = trace == "bursty" || absl::StartsWith(trace, "bursty:");
  if (trace == "poisson" || is_bursty) {
    if (flags.rate <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("--trace=", trace, " needs --rate"));
    }
    if (!is_bursty) return absl::OkStatus();
    options->burstiness = kBursty;
    if (trace == "bursty") return absl::OkStatus();
    if (!absl::SimpleAtod(trace.substr(7), &options->burstiness) ||
        !(options->burstiness >= 1 && options->burstiness <= kMostBursty)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--trace=", trace, ": bursty:CV with a number from 1 to ", kMostBursty));
    }
    return absl::OkStatus();
  }
  std::string path = trace;
  TraceForm form = TraceForm::kAny;
  for (const auto& [name, named] :
       {std::pair("azure", TraceForm::kAzure), std::pair("mooncake", TraceForm::kMooncake)}) {
    if (trace == name) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--trace=", name, ": the recording does not come with this program; --trace=", name,
          ":FILE reads it"));
    }
    if (!absl::StartsWith(trace, absl::StrCat(name, ":"))) continue;
    path = trace.substr(std::string(name).size() + 1);
    form = named;
  }
  ASSIGN_OR_RETURN(options->trace, LoadTrace(path, form));
  return absl::OkStatus();
}

}  // namespace

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
      "and optionally arrivals; azure:FILE and mooncake:FILE are recordings of these forms. Or how "
      "the requests of --rate arrive: poisson, or bursty:CV with gaps of this coefficient of "
      "variation, up to 20; bursty is bursty:4.");
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
  if (!flags.trace.empty()) RETURN_IF_ERROR(SetTrace(flags, &options));
  options.seed = flags.seed;
  options.rate = flags.rate;
  options.trace_speed = flags.trace_speed;
  options.shared_prefix_tokens = flags.shared_prefix_tokens;
  options.num_prefixes = flags.num_prefixes;
  return options;
}

}  // namespace continuo::cli
