// SPDX-License-Identifier: Apache-2.0
#include "services/worker/draft_model.h"

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"
#include "services/worker/engine/draft/model_drafter.h"
#include "services/worker/model/description/config.h"
#include "services/worker/plan_load.h"

namespace continuo::worker {

absl::StatusOr<DraftModel> DraftModel::Open(const WorkerConfig& config,
                                            const model::LoadOptions& target,
                                            const text::TextModel& text) {
  int context_length = target.source.max_context_tokens;
  if (context_length == 0) {
    ASSIGN_OR_RETURN(const model::ModelConfig model,
                     model::ReadModelConfig(target.source.dir, target.source.allow_unread));
    context_length = model.context_length;
  }
  ASSIGN_OR_RETURN(const model::LoadOptions load, PlanDraftLoad(config, context_length));
  ASSIGN_OR_RETURN(const std::unique_ptr<text::TextModel> own,
                   text::TextModel::Open(config.draft_model));
  if (own->tokenizer_digest() != text.tokenizer_digest()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the draft model's tokenizer, ", own->tokenizer_digest(),
                     ", is not the model's, ", text.tokenizer_digest()));
  }
  absl::StatusOr<model::ModelLoader> loader = model::ModelLoader::Open(load);
  if (!loader.ok()) {
    return absl::Status(loader.status().code(), absl::StrCat("draft model ", load.source.dir, ": ",
                                                             loader.status().message()));
  }
  return DraftModel(*std::move(loader), load.max_batch_tokens);
}

absl::StatusOr<std::shared_ptr<engine::Drafter>> DraftModel::MakeDrafter(
    const model::LoadedModel& target, const Clock* clock) && {
  ASSIGN_OR_RETURN(model::LoadedModel model, std::move(loader_).MakeKvCache(target.num_blocks));
  const auto on_lost = [](const absl::Status& reason) {
    common::Log(common::LogSeverity::kWarning,
                "the draft model has failed; there are no more drafts",
                {{"reason", reason.ToString()}});
  };
  auto drafter = std::make_shared<engine::ModelDrafter>(
      engine::ModelDrafterOptions{.num_blocks = model.num_blocks,
                                  .block_size = model.block_size,
                                  .vocab_size = model.config.vocab_size,
                                  .target_vocab_size = target.config.vocab_size,
                                  .context_length = model.config.context_length,
                                  .max_batch_tokens = max_batch_tokens_,
                                  .on_lost = on_lost},
      std::move(model.executor), clock);
  RETURN_IF_ERROR(drafter->Calibrate());
  common::Log(common::LogSeverity::kInfo, "loaded the draft model",
              {{"architecture", model.config.architecture},
               {"parameters", model.num_parameters},
               {"weights", model.weight_format},
               {"kv", model.kv_format},
               {"backend", model.backend_name},
               {"kv_blocks", model.num_blocks},
               {"kv_bytes", model.ranks[0].kv_bytes}});
  return drafter;
}

}  // namespace continuo::worker
