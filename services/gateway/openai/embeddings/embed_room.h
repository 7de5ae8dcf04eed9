// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "services/base/byte_budget.h"

namespace continuo::gateway::openai {

// Makes `room`, a share of the budget, `bytes` large: a request's inputs and its answer in one
// piece have it from before workers are asked until it is sent. INVALID_ARGUMENT names the member
// `field` where so many never have room; RESOURCE_EXHAUSTED where they have none now.
absl::Status TakeEmbedRoom(const ByteBudget& budget, int64_t bytes, std::string_view field,
                           ByteBudget::Share* room);

}  // namespace continuo::gateway::openai
