// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/requests/sequence.h"
#include "services/worker/model/step_plan.h"

namespace continuo::engine {

// Adds the places of rows at the positions [begin, end) of a sequence, whose tokens have been
// added, in its blocks. plan.max_blocks has room for them.
void AddPlaces(model::SequenceId id, std::span<const BlockId> blocks, int block_size, int begin,
               int end, model::StepPlan& plan);

// Adds a sample of the last row of `plan` that picks a draft as the target model's step will pick
// the token: by the seed, temperature, penalties and biases of `s`, so that both pick the same if
// their logits agree. `drafts` precede it; ids from vocab_size on are left out. `scratch` is reused
// memory.
void AddDraftSample(const Sequence& s, std::span<const int32_t> drafts, int vocab_size,
                    std::vector<kernels::SeenToken>& scratch, model::StepPlan& plan);

}  // namespace continuo::engine
