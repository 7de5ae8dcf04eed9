// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "services/worker/model/description/config.h"

namespace continuo::model {

// Returns the frequencies of the rotation, [rotary_dim / 2]: theta^(-2i / rotary_dim), scaled as
// `rope` says (Hugging Face's "linear", "llama3", "longrope", "yarn" and "proportional" in
// modeling_rope_utils), rounded to f32 once. `context` is the length of the longest sequence
// served, by which longrope picks its factors.
std::vector<float> RopeFrequencies(const RopeConfig& rope, int rotary_dim, int64_t context);

}  // namespace continuo::model
