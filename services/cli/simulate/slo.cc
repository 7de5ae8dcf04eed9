// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/slo.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "services/base/status_macros.h"

namespace continuo::cli {
namespace {

constexpr char kAllowed[] =
    "terms are {ttft, itl, e2e}_{p50, p90, p95, p99, p999, mean, max}=TIME, as in "
    "ttft_p99=2s,itl_p99=50ms, and errors=SHARE, as in errors=0.1%";

absl::Status BadTerm(const std::string& term) {
  return absl::InvalidArgumentError(absl::StrCat("\"", term, "\": ", kAllowed));
}

bool ParseShare(std::string text, double* share) {
  const bool is_percent = absl::EndsWith(text, "%");
  if (is_percent) text.pop_back();
  if (!absl::SimpleAtod(text, share)) return false;
  if (is_percent) *share /= 100;
  return *share >= 0 && *share <= 1;
}

bool ParseName(const std::string& name, SloTerm* term) {
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  if (parts.size() != 2) return false;
  constexpr std::pair<const char*, SloTerm::Latency> kLatencies[] = {
      {"ttft", SloTerm::Latency::kFirstToken},
      {"itl", SloTerm::Latency::kBetweenTokens},
      {"e2e", SloTerm::Latency::kWholeRequest}};
  constexpr std::pair<const char*, double> kShares[] = {
      {"p50", 0.5},    {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99},
      {"p999", 0.999}, {"mean", 0},  {"max", 1}};
  const auto latency =
      std::ranges::find_if(kLatencies, [&](const auto& known) { return parts[0] == known.first; });
  const auto share =
      std::ranges::find_if(kShares, [&](const auto& known) { return parts[1] == known.first; });
  if (latency == std::end(kLatencies) || share == std::end(kShares)) return false;
  term->name = name;
  term->latency = latency->second;
  term->share = share->second;
  return true;
}

}  // namespace

absl::StatusOr<Slo> ParseSlo(std::string_view text) {
  Slo slo;
  const std::vector<std::string> terms = absl::StrSplit(std::string(text), ',');
  for (const std::string& written : terms) {
    const std::vector<std::string> sides = absl::StrSplit(written, '=');
    if (sides.size() != 2) return BadTerm(written);
    if (sides[0] == "errors") {
      if (!ParseShare(sides[1], &slo.errors)) return BadTerm(written);
      continue;
    }
    SloTerm& term = slo.terms.emplace_back();
    absl::Duration limit;
    if (!ParseName(sides[0], &term) || !absl::ParseDuration(sides[1], &limit) ||
        limit <= absl::ZeroDuration() || limit == absl::InfiniteDuration()) {
      return BadTerm(written);
    }
    term.limit = absl::ToDoubleSeconds(limit);
  }
  if (slo.terms.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no latency is limited; ", kAllowed));
  }
  return slo;
}

double ValueOf(const SloTerm& term, const simulate::Results& results) {
  const simulate::LatencyHistogram& latencies =
      term.latency == SloTerm::Latency::kFirstToken      ? results.time_to_first_token
      : term.latency == SloTerm::Latency::kBetweenTokens ? results.inter_token
                                                         : results.whole;
  if (term.share == 0) return latencies.mean();
  return term.share == 1 ? latencies.max() : latencies.Percentile(term.share);
}

double ErrorsOf(const simulate::Results& results) {
  const uint64_t bad = results.rejected + results.failed;
  const uint64_t all = bad + results.ok;
  return all > 0 ? static_cast<double>(bad) / static_cast<double>(all) : 0;
}

bool Holds(const Slo& slo, const simulate::Results& results) {
  return results.ok > 0 && ErrorsOf(results) <= slo.errors &&
         std::ranges::all_of(
             slo.terms, [&](const SloTerm& term) { return ValueOf(term, results) <= term.limit; });
}

}  // namespace continuo::cli
