// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "services/worker/model/description/config.h"

namespace continuo::worker {

// Names what a model's layers compute in the words of the field, with its sizes: "sliding window:
// 4096 tokens in 13 of 26 layers".
std::vector<std::string> MechanismsOf(const model::ModelConfig& config);

// The same without sizes, "sliding window", for tables of families.
std::vector<std::string> MechanismNames(const model::ModelConfig& config);

}  // namespace continuo::worker
