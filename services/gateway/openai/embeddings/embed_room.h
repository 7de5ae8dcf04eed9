// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "services/base/byte_budget.h"

namespace continuo::gateway::openai {

// Takes `bytes` for a request's inputs and its answer in one piece, which it has from before
// workers are asked until it is sent. INVALID_ARGUMENT names the member `field` where so many never
// have room; RESOURCE_EXHAUSTED where they have none now.
absl::Status TakeEmbedRoom(ByteBudget& budget, int64_t bytes, std::string_view field,
                           ByteBudget::Share* room);

}  // namespace continuo::gateway::openai
