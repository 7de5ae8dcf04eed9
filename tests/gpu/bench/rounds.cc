// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/rounds.h"

#include <algorithm>
#include <cmath>

namespace continuo {

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Round> SteadyRounds(std::span<const Round> rounds, size_t num_ceilings,
                                double tolerance) {
  std::vector<Round> steady(rounds.begin(), rounds.end());
  for (size_t i = 0; i < num_ceilings && !rounds.empty(); ++i) {
    const double median = SpreadOf(rounds, i).median;
    std::erase_if(steady,
                  [&](const Round& r) { return std::abs(r[i] - median) > tolerance * median; });
  }
  return steady;
}

std::vector<Round> MeasureInTurn(std::span<const std::function<double()>> things,
                                 size_t num_ceilings, size_t wanted, size_t most) {
  std::vector<Round> rounds;
  while (rounds.size() < most && SteadyRounds(rounds, num_ceilings).size() < wanted) {
    Round& round = rounds.emplace_back();
    for (const auto& thing : things) round.push_back(thing());
  }
  return rounds;
}

Spread SpreadOf(std::span<const Round> rounds, size_t thing) {
  if (rounds.empty()) return {};
  std::vector<double> seconds;
  for (const Round& round : rounds) seconds.push_back(round[thing]);
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  return {MedianOf(seconds), *least, *most};
}

double LeastSeconds(const Amount& call, std::span<const Amount> ceilings,
                    std::span<const double> seconds) {
  double bytes_per_s = 0, flops_per_s = 0;
  for (size_t i = 0; i < ceilings.size(); ++i) {
    // A product reads its factors, too, far more slowly than memory delivers them.
    if (ceilings[i].flops > 0) {
      flops_per_s = std::max(flops_per_s, ceilings[i].flops / seconds[i]);
    } else {
      bytes_per_s = std::max(bytes_per_s, ceilings[i].bytes / seconds[i]);
    }
  }
  return std::max(bytes_per_s > 0 ? call.bytes / bytes_per_s : 0,
                  flops_per_s > 0 ? call.flops / flops_per_s : 0);
}

}  // namespace continuo
