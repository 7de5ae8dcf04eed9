// SPDX-License-Identifier: Apache-2.0
#include "services/worker/draft_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/model_drafter.h"

namespace continuo {
namespace {

// Rows of one step of the draft model: a longer prompt is read in several.
constexpr int kMaxRows = 256;

}  // namespace

absl::StatusOr<LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length) {
  LoadOptions load = CommonLoad(config);
  load.dir = config.draft_model;
  load.max_batch_tokens = std::min(load.max_batch_tokens, kMaxRows);
  ASSIGN_OR_RETURN(const LoadEstimate estimate, EstimateLoad(load));
  load.max_context_tokens = std::min(context_length, estimate.config.context_length);
  return load;
}

absl::StatusOr<std::shared_ptr<Drafter>> LoadDraftModel(const WorkerConfig& config,
                                                        const LoadOptions& target_options,
                                                        const LoadedModel& target,
                                                        const TextModel& text, const Clock* clock) {
  ASSIGN_OR_RETURN(LoadOptions load, PlanDraftLoad(config, target.config.context_length));
  ASSIGN_OR_RETURN(const std::unique_ptr<TextModel> own, TextModel::Open(config.draft_model));
  if (own->tokenizer_digest() != text.tokenizer_digest()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the draft model's tokenizer, ", own->tokenizer_digest(),
                     ", is not the model's, ", text.tokenizer_digest()));
  }
  load.num_blocks = target.num_blocks;
  load.on_stuck = target_options.on_stuck;
  ASSIGN_OR_RETURN(LoadedModel draft, LoadExecutor(load));
  auto drafter = std::make_shared<ModelDrafter>(
      ModelDrafterOptions{.num_blocks = draft.num_blocks,
                          .block_size = draft.block_size,
                          .vocab_size = draft.config.vocab_size,
                          .target_vocab_size = target.config.vocab_size,
                          .context_length = draft.config.context_length,
                          .max_rows = load.max_batch_tokens},
      std::move(draft.executor), clock);
  RETURN_IF_ERROR(drafter->Calibrate());
  return drafter;
}

}  // namespace continuo
