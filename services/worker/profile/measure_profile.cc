// SPDX-License-Identifier: Apache-2.0
#include "services/worker/profile/measure_profile.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/kv/state_pool.h"
#include "services/worker/profile/cost_fit.h"

namespace continuo::profile {
namespace {

// A step of several prompts of one length.
struct Batch {
  int sequences, length;
};
constexpr Batch kBatches[] = {{1, 64},   {1, 512}, {4, 128}, {16, 64}, {1, 2048},
                              {32, 128}, {8, 512}, {64, 64}, {16, 512}};
constexpr int kDecodeSteps = 16;

// A sequence whose first `length` tokens are in the cache.
struct Sequence {
  int first_block = 0, num_blocks = 0, length = 0;
  int state_slot = -1;  // of two, which take turns
  bool has_state = false;
};

// One sequence's part of a step.
struct Part {
  Sequence* sequence;
  int tokens;
  bool samples;
};

class Measurement {
 public:
  Measurement(const MeasureOptions& options, model::Executor& executor, const Clock& clock)
      : options_(options), engine_(options.engine), executor_(executor), clock_(clock) {}

  absl::StatusOr<WorkerProfile> Run() {
    const absl::Duration begin = clock_.Elapsed();
    for (const Batch& batch : kBatches) {
      const bool is_late = clock_.Elapsed() - begin > options_.budget;
      if (is_late && fit_.num_steps() >= CostFit::kFewest) break;
      RETURN_IF_ERROR(RunBatch(batch));
    }
    // A small cache or context has room for a few of them alone.
    const int longest =
        static_cast<int>(std::min<int64_t>(options_.max_context_tokens, TokensOfCache())) -
        kDecodeSteps - 1;
    for (int i = 0; longest > 0 && fit_.num_steps() < CostFit::kFewest && i < kDecodeSteps; ++i) {
      RETURN_IF_ERROR(RunBatch({1, std::max(1, longest / (1 + i % 4))}));
    }
    if (fit_.num_steps() < CostFit::kFewest) {
      return absl::FailedPreconditionError(
          absl::StrCat("a KV cache of ", TokensOfCache(), " tokens and a context of ",
                       options_.max_context_tokens, " are too small to measure"));
    }
    WorkerProfile profile;
    profile.name = options_.name;
    ASSIGN_OR_RETURN(profile.step, fit_.Fit());
    profile.engine = engine_;
    profile.is_asynchronous = executor_.IsAsynchronous();
    profile.max_context_tokens = options_.max_context_tokens;
    return profile;
  }

 private:
  int64_t TokensOfCache() const { return int64_t{engine_.num_blocks} * engine_.block_size; }

  bool Fits(const Batch& batch) const {
    const int tokens = batch.length + kDecodeSteps;
    const int64_t blocks = int64_t{batch.sequences} * engine::BlocksFor(tokens, engine_.block_size);
    const bool has_slots =
        engine_.num_state_slots == 0 || 2 * batch.sequences <= engine_.num_state_slots;
    return tokens < options_.max_context_tokens && blocks <= engine_.num_blocks && has_slots &&
           batch.sequences <= std::min(engine_.max_running, engine_.max_batch_tokens);
  }

  absl::Status RunBatch(const Batch& batch) {
    if (!Fits(batch)) return absl::OkStatus();
    const int blocks = engine::BlocksFor(batch.length + kDecodeSteps, engine_.block_size);
    std::vector<Sequence> sequences(static_cast<size_t>(batch.sequences));
    for (int i = 0; i < batch.sequences; ++i) {
      sequences[static_cast<size_t>(i)] = {.first_block = i * blocks,
                                           .num_blocks = blocks,
                                           .state_slot = engine_.num_state_slots > 0 ? 2 * i : -1};
    }
    // Prompts, as many tokens in a step as fit.
    size_t done = 0;
    while (done < sequences.size()) {
      std::vector<Part> parts;
      int left = engine_.max_batch_tokens;
      for (size_t i = done; i < sequences.size() && left > 0; ++i) {
        const int missing = batch.length - sequences[i].length;
        const int tokens = std::min({missing, engine_.max_prefill_chunk, left});
        left -= tokens;
        parts.push_back({&sequences[i], tokens, tokens == missing});
        if (tokens < missing) break;
      }
      RETURN_IF_ERROR(RunStep(parts));
      while (done < sequences.size() && sequences[done].length == batch.length) ++done;
    }
    for (int step = 0; step < kDecodeSteps; ++step) {
      std::vector<Part> parts;
      for (Sequence& sequence : sequences) parts.push_back({&sequence, 1, true});
      RETURN_IF_ERROR(RunStep(parts));
    }
    return absl::OkStatus();
  }

  absl::Status RunStep(const std::vector<Part>& parts) {
    const model::StepPlan plan = PlanOf(parts);
    const absl::Duration begin = clock_.Elapsed();
    if (auto result = executor_.Run(plan, [](std::span<uint32_t>) {}); !result.ok()) {
      return std::move(result).status();
    }
    // The first step also pages weights in.
    if (num_run_++ > 0) fit_.Add(LoadOf(plan), clock_.Elapsed() - begin);
    return absl::OkStatus();
  }

  model::StepPlan PlanOf(const std::vector<Part>& parts) {
    model::StepPlan plan;
    for (const Part& part : parts) {
      plan.max_blocks = std::max(plan.max_blocks, part.sequence->num_blocks);
    }
    for (const auto& [sequence, tokens, samples] : parts) {
      for (int i = 0; i < tokens; ++i) {
        const int at = sequence->length + i;
        // Different tokens, since experts are chosen by them.
        plan.token_ids.push_back(static_cast<int32_t>(next_token_++ * 7919 % engine_.vocab_size));
        plan.positions.push_back(at);
        plan.kv_slots.push_back(sequence->first_block * engine_.block_size + at);
      }
      if (engine_.num_state_slots > 0) {
        plan.state_from.push_back(sequence->has_state ? sequence->state_slot : engine::kNoState);
        plan.state_to.resize(plan.token_ids.size(), engine::kNoState);
        if (sequence->has_state) sequence->state_slot ^= 1;
        plan.state_to.back() = sequence->state_slot;
        sequence->has_state = true;
      }
      sequence->length += tokens;
      for (int b = 0; b < plan.max_blocks; ++b) {
        const bool is_used = b < engine::BlocksFor(sequence->length, engine_.block_size);
        plan.block_tables.push_back(is_used ? sequence->first_block + b : engine::kNoBlock);
      }
      plan.sequence_ids.push_back(plan.num_seqs() + 1);
      plan.query_begin.push_back(plan.num_rows());
      plan.kv_len.push_back(sequence->length);
      if (samples) {
        plan.sample_rows.push_back(plan.num_rows() - 1);
        plan.sample_targets.push_back(engine_.reads_states ? model::kReadState
                                                           : model::kSampleToken);
        plan.sampling.push_back({.temperature = 0});
        plan.bias_begin.push_back(0);
        plan.seen_begin.push_back(0);
      }
      plan.sample_begin.push_back(plan.num_samples());
    }
    return plan;
  }

  const MeasureOptions& options_;
  const engine::EngineOptions& engine_;
  model::Executor& executor_;
  const Clock& clock_;
  CostFit fit_;
  int64_t num_run_ = 0, next_token_ = 1;
};

}  // namespace

absl::StatusOr<WorkerProfile> MeasureProfile(const MeasureOptions& options,
                                             model::Executor& executor, const Clock& clock) {
  return Measurement(options, executor, clock).Run();
}

}  // namespace continuo::profile
