// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace continuo {

// Seconds of a call of each of some things that are measured in turn; the first ones are ceilings,
// what the machine gives meanwhile.
using Round = std::vector<double>;

// Of an odd number of values; of an even one the larger of the two in the middle. Not of none.
double MedianOf(std::vector<double> values);

// The rounds in which no ceiling was further than `tolerance` of it from its median of all rounds:
// in others the machine was another one.
std::vector<Round> SteadyRounds(std::span<const Round> rounds, size_t num_ceilings,
                                double tolerance = 0.05);

// Rounds of all things in turn, each of which measures itself once: until `wanted` are steady, or
// for `most` in all.
std::vector<Round> MeasureInTurn(std::span<const std::function<double()>> things,
                                 size_t num_ceilings, size_t wanted, size_t most);

struct Spread {
  double median = 0, least = 0, most = 0;
};
// Of one thing; of no rounds zeros.
Spread SpreadOf(std::span<const Round> rounds, size_t thing);

// What a call moves and computes, and a ceiling: a call of a thing that does nothing else.
struct Amount {
  double bytes = 0, flops = 0;
};
// Seconds that a call takes at least where ceilings of so much take so long: it moves its bytes as
// fast as the fastest mover among them, beside its operations as fast as the fastest computer. 0
// where no ceiling bounds it.
double LeastSeconds(const Amount& call, std::span<const Amount> ceilings,
                    std::span<const double> seconds);

}  // namespace continuo
