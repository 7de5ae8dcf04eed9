// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/cli/simulate/slo.h"
#include "services/simulate/results.h"

namespace continuo::cli {

// The fleets that a search has simulated, and the smallest that holds the SLO; none if even the
// largest does not.
struct FleetSearch {
  Slo slo;
  std::vector<simulate::Results> tried;  // by number of workers
  std::optional<int> smallest;
};

// Simulates fleets of `least` workers, twice as many and so on until one holds the SLO, then halves
// the gap. Takes for granted that a larger fleet holds what a smaller one holds. `run` simulates a
// fleet of so many workers; its error ends the search.
absl::StatusOr<FleetSearch> FindSmallestFleet(
    const Slo& slo, int least, int most,
    absl::FunctionRef<absl::StatusOr<simulate::Results>(int workers)> run);

// One row for each fleet, with the terms of the SLO, and a line with the answer.
std::string FormatSearch(const FleetSearch& search);

// A plot: each term over its limit, by number of workers, as an SVG image.
std::string PlotSearch(const FleetSearch& search);

}  // namespace continuo::cli
