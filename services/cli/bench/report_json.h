// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/bench/bench_flags.h"
#include "services/cli/bench/bench_report.h"

namespace continuo::cli {

// The totals that the reports of a bench and of a simulation both have.
struct ReportTotals {
  double seconds = 0;
  uint64_t sent = 0, ok = 0, rejected = 0, failed = 0;
  const std::map<std::string, uint64_t>& errors;  // by their text; outlives the totals
  uint64_t prompt_tokens = 0, cached_prompt_tokens = 0, output_tokens = 0;
};
// The members "requests", "tokens" and "throughput" of a report.
nlohmann::ordered_json TotalsJson(const ReportTotals& totals);

// The report of a bench in JSON. Times are in seconds.
nlohmann::ordered_json ReportJson(const BenchReport& report);
// The configuration of the bench: its flags, the name of the model, and whether the loop was open.
nlohmann::ordered_json ConfigJson(const BenchFlags& flags, const std::string& model, bool open);

}  // namespace continuo::cli
