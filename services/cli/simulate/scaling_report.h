// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "services/simulate/results.h"

namespace continuo::cli {

// What an autoscaler did in a simulation: the bounds, the mean and the changes of the number of
// workers, and a row for each of up to twenty intervals. Empty without an autoscaler.
std::string FormatScaling(const simulate::Results& results);

// The same in JSON, with each change. Needs an autoscaler.
nlohmann::ordered_json ScalingJson(const simulate::Results& results);

// A plot of the workers over time, as an SVG image. Needs an autoscaler.
std::string PlotScaling(const simulate::Results& results);

}  // namespace continuo::cli
