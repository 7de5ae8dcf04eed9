// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace continuo {

// What one sequence takes of the KV cache now and will take later, in tokens.
struct Footprint {
  int64_t tokens = 0;     // its own, not shared: the whole prompt, also where it is yet to be read
  int64_t remaining = 0;  // expected to be generated still
};

// The most KV tokens that sequences will hold together at any moment, where each grows by a token
// a step until it has got what is expected of it and then gives back what is its own. At the end
// of the one with r remaining, those with at least r hold their tokens and r more each; the
// largest of these moments is the answer. `shared` is held throughout. Sorts `footprints`.
int64_t PeakTokens(int64_t shared, std::vector<Footprint>& footprints);

}  // namespace continuo
