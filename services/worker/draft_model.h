// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/worker/config.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/model/load/model_loader.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {

// The model of --draft_model. It is opened before the target model, which takes the memory that is
// left, and gets its KV cache after it.
class DraftModel {
 public:
  // `target` says how the target model is loaded next, `text` is that model's. InvalidArgument
  // where the tokenizers differ.
  static absl::StatusOr<DraftModel> Open(const WorkerConfig& config,
                                         const model::LoadOptions& target,
                                         const text::TextModel& text);

  // Bytes of device memory that the draft model takes for each KV block of the target.
  int64_t bytes_per_block() const { return loader_.model().bytes_per_block; }
  // Makes the KV cache, with as many blocks as `target` has, and calibrates the drafter. `clock`
  // outlives the result.
  absl::StatusOr<std::shared_ptr<engine::Drafter>> MakeDrafter(const model::LoadedModel& target,
                                                               const Clock* clock) &&;

 private:
  DraftModel(model::ModelLoader loader, int max_batch_tokens)
      : loader_(std::move(loader)), max_batch_tokens_(max_batch_tokens) {}

  model::ModelLoader loader_;
  int max_batch_tokens_;
};

}  // namespace continuo::worker
