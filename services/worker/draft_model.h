// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "services/base/clock.h"
#include "services/worker/config.h"
#include "services/worker/engine/draft/drafter.h"
#include "services/worker/model/run/loader.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {

// How the model of --draft_model is loaded beside one that serves `context_length` tokens: in the
// same formats, on one rank, the CPU's or that of the first device. It gets its KV cache later.
absl::StatusOr<model::LoadOptions> PlanDraftLoad(const WorkerConfig& config, int context_length);

// The model of --draft_model. It is loaded before the model that it guesses for, which takes what
// memory is left, and gets its KV cache behind it.
class DraftModel {
 public:
  // target: of the model that is loaded next, its folder and context. InvalidArgument where the
  // draft model's tokenizer is not that of `text`, the target's.
  static absl::StatusOr<DraftModel> Load(const WorkerConfig& config,
                                         const model::LoadOptions& target,
                                         const text::TextModel& text);

  // Of the device's memory, for each KV block of the target.
  int64_t bytes_per_block() const { return loaded_.bytes_per_block; }
  // With as many KV blocks as `target` has, and calibrated. `clock` outlives the result.
  absl::StatusOr<std::shared_ptr<engine::Drafter>> MakeDrafter(const model::LoadedModel& target,
                                                               const Clock* clock) &&;

 private:
  DraftModel(model::LoadedModel loaded, int max_rows)
      : loaded_(std::move(loaded)), max_rows_(max_rows) {}

  model::LoadedModel loaded_;
  int max_rows_;
};

}  // namespace continuo::worker
