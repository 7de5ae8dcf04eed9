// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes lists of models. Pure functions; `created` is in Unix seconds.

#include <cstdint>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// Whose form a list has.
enum class ModelsForm { kOpenAi, kAnthropic };

// The bodies of /v1/models and /v1/models/{id}.
std::string ModelsJson(ModelsForm form, const std::vector<v1::Model>& models, int64_t created);
std::string ModelJson(ModelsForm form, const v1::Model& model, int64_t created);

}  // namespace continuo::gateway::openai
