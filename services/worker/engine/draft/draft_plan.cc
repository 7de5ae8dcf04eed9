// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/draft_plan.h"

namespace continuo::engine {

void AddPlaces(model::SequenceId id, std::span<const BlockId> blocks, int block_size, int begin,
               int end, model::StepPlan& plan) {
  for (int at = begin; at < end; ++at) {
    plan.positions.push_back(at);
    plan.kv_slots.push_back(blocks[static_cast<size_t>(at / block_size)] * block_size +
                            at % block_size);
  }
  plan.sequence_ids.push_back(id);
  plan.query_begin.push_back(plan.num_rows());
  plan.kv_len.push_back(end);
  plan.block_tables.insert(plan.block_tables.end(), blocks.begin(),
                           blocks.begin() + BlocksFor(end, block_size));
  plan.block_tables.resize(plan.sequence_ids.size() * static_cast<size_t>(plan.max_blocks),
                           kNoBlock);
}

void AddDraftSample(const Sequence& s, std::span<const int32_t> drafts, int vocab_size,
                    std::vector<kernels::SeenToken>& scratch, model::StepPlan& plan) {
  const Request& r = s.request->request;
  plan.sample_rows.push_back(plan.num_rows() - 1);
  plan.sample_targets.push_back(model::kSampleToken);
  model::SamplingParams& sampling = plan.sampling.emplace_back(r.sampling);
  sampling.sequence_index = s.index;
  sampling.num_logprobs = -1;
  for (const kernels::LogitBias& bias : r.biases) {
    if (bias.token_id < vocab_size) plan.biases.push_back(bias);
  }
  if (model::HasPenalty(r.sampling) && s.seen_is_built) {
    scratch = s.seen;
    for (const int32_t draft : drafts) model::AddSeen(scratch, draft);
    for (const kernels::SeenToken& seen : scratch) {
      if (seen.token_id < vocab_size) plan.seen.push_back(seen);
    }
  }
  plan.bias_begin.push_back(static_cast<int32_t>(plan.biases.size()));
  plan.seen_begin.push_back(static_cast<int32_t>(plan.seen.size()));
}

}  // namespace continuo::engine
