// SPDX-License-Identifier: Apache-2.0
#include "services/worker/draft_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/worker/engine/draft/model_drafter.h"
#include "services/worker/model/checkpoint/config.h"

namespace continuo::worker {
namespace {

// Rows of one step of the draft model: a longer prompt is read in several.
constexpr int kMaxRows = 256;

}  // namespace

absl::StatusOr<model::LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length) {
  model::LoadOptions load = CommonLoad(config);
  load.dir = config.draft_model;
  load.device = config.device.substr(0, config.device.find(','));
  load.max_batch_tokens = std::min(load.max_batch_tokens, kMaxRows);
  if (load.device != "cpu") load.warm_up_sequences = config.max_running;
  ASSIGN_OR_RETURN(const model::ModelConfig model, model::ReadModelConfig(load.dir));
  load.max_context_tokens = std::min(context_length, model.context_length);
  load.cache_later = true;
  return load;
}

absl::StatusOr<DraftModel> DraftModel::Load(const WorkerConfig& config,
                                            const model::LoadOptions& target,
                                            const text::TextModel& text) {
  int context_length = target.max_context_tokens;
  if (context_length == 0) {
    ASSIGN_OR_RETURN(const model::ModelConfig model, model::ReadModelConfig(target.dir));
    context_length = model.context_length;
  }
  ASSIGN_OR_RETURN(model::LoadOptions load, PlanDraftLoad(config, context_length));
  ASSIGN_OR_RETURN(const std::unique_ptr<text::TextModel> own,
                   text::TextModel::Open(config.draft_model));
  if (own->tokenizer_digest() != text.tokenizer_digest()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the draft model's tokenizer, ", own->tokenizer_digest(),
                     ", is not the model's, ", text.tokenizer_digest()));
  }
  absl::StatusOr<model::LoadedModel> loaded = model::LoadExecutor(load);
  if (!loaded.ok()) {
    return absl::Status(loaded.status().code(),
                        absl::StrCat("draft model ", load.dir, ": ", loaded.status().message()));
  }
  return DraftModel(*std::move(loaded), load.max_batch_tokens);
}

absl::StatusOr<std::shared_ptr<engine::Drafter>> DraftModel::MakeDrafter(
    const model::LoadedModel& target, const Clock* clock) && {
  RETURN_IF_ERROR(model::MakeCache(target.num_blocks, loaded_));
  auto drafter = std::make_shared<engine::ModelDrafter>(
      engine::ModelDrafterOptions{.num_blocks = loaded_.num_blocks,
                                  .block_size = loaded_.block_size,
                                  .vocab_size = loaded_.config.vocab_size,
                                  .target_vocab_size = target.config.vocab_size,
                                  .context_length = loaded_.config.context_length,
                                  .max_batch_tokens = max_rows_,
                                  .on_lost =
                                      [](const absl::Status& why) {
                                        common::Log(
                                            common::LogSeverity::kWarning,
                                            "the draft model has failed; there are no more drafts",
                                            {{"reason", why.ToString()}});
                                      }},
      std::move(loaded_.executor), clock);
  RETURN_IF_ERROR(drafter->Calibrate());
  common::Log(common::LogSeverity::kInfo, "loaded the draft model",
              {{"architecture", loaded_.config.architecture},
               {"parameters", loaded_.num_parameters},
               {"weights", loaded_.weight_format},
               {"kv", loaded_.kv_format},
               {"backend", loaded_.backend_name},
               {"kv_blocks", loaded_.num_blocks},
               {"kv_bytes", loaded_.ranks[0].kv_bytes}});
  return drafter;
}

}  // namespace continuo::worker
