// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "services/cli/bench/bench_flags.h"
#include "services/cli/bench/bench_report.h"

namespace continuo::cli {

// The report of a bench in JSON. Times are in seconds.
nlohmann::ordered_json ReportJson(const BenchReport& report);
// The configuration of the bench: its flags, the name of the model, and whether the loop was open.
nlohmann::ordered_json ConfigJson(const BenchFlags& flags, const std::string& model, bool open);

}  // namespace continuo::cli
