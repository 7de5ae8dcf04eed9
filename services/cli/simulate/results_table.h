// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "services/simulate/results.h"

namespace continuo::cli {

// Formats the results of a simulation as a table, in the words of a bench.
std::string FormatResults(const simulate::Results& results);

// The same in JSON, with the members of a bench's report where they mean the same.
nlohmann::ordered_json ResultsJson(const simulate::Results& results);

}  // namespace continuo::cli
