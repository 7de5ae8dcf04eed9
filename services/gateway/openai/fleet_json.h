// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "services/gateway/routing/load_view.h"

namespace continuo::gateway::openai {

// The body of /fleet: {"workers":[{worker, model, state, slow, running, waiting, kv_blocks_used,
// kv_blocks_total} …]}, one entry for each model of each worker, by name. No addresses. Models with
// recurrent states also have state_slots_used and state_slots_total.
std::string FleetJson(const LoadSnapshot& snapshot);

}  // namespace continuo::gateway::openai
