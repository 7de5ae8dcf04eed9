// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace continuo {

// The seconds of a call of each of some things that are measured in turn. The first ones are
// ceilings: what the machine delivers meanwhile.
using Round = std::vector<double>;

// Returns the median; of an even number of values the larger of the two in the middle. There must
// be a value.
double MedianOf(std::vector<double> values);

// Returns the rounds in which every ceiling was within `tolerance` of its median over all rounds.
// In the others the machine was a different one.
std::vector<Round> SteadyRounds(std::span<const Round> rounds, size_t num_ceilings,
                                double tolerance = 0.05);

// Measures all things in turn, once in each round, until `wanted` rounds are steady, or for `most`
// rounds in all.
std::vector<Round> MeasureInTurn(std::span<const std::function<double()>> things,
                                 size_t num_ceilings, size_t wanted, size_t most);

struct Spread {
  double median = 0, least = 0, most = 0;
};
// Returns the spread of one thing; zeros without rounds.
Spread SpreadOf(std::span<const Round> rounds, size_t thing);

// The bytes and operations of a call. A ceiling is a call that does nothing else.
struct Amount {
  double bytes = 0, flops = 0;
};
// Returns the least seconds of a call where ceilings of these amounts take these times: it moves
// its bytes as fast as the fastest mover among them and, beside that, computes as fast as the
// fastest computer. 0 if no ceiling bounds it.
double LeastSeconds(const Amount& call, std::span<const Amount> ceilings,
                    std::span<const double> seconds);

}  // namespace continuo
