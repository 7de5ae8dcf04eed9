// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/config.h"
#include "services/worker/embedding/embedding_head.h"
#include "services/worker/embedding/score_head.h"
#include "services/worker/engine/engine.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/load/model_loader.h"
#include "services/worker/server/pairs/pair_template.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/text/bundle/tokenizer_bundle.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {

// How the engine runs `model`. The drafter of speculation=draft is left out (draft_model.h).
// `clock` outlives the engine.
engine::EngineOptions MakeEngineOptions(const WorkerConfig& config, const model::LoadedModel& model,
                                        const Clock* clock);

// What makes vectors or scores of states. All null: the model generates.
struct Heads {
  std::shared_ptr<const embedding::EmbeddingHead> embedding;
  std::shared_ptr<const embedding::ScoreHead> score;
  std::shared_ptr<const server::PairTemplate> pairs;  // with `score`
};

// Reads the weights that `config` asks for, of the model that was loaded. Errors name the file, the
// tensor or the flag. `text` outlives the result.
absl::StatusOr<Heads> LoadHeads(const WorkerConfig& config, const model::ModelConfig& model,
                                const text::TextModel& text);

// The model as the server describes it to clients, fingerprint included. Answers end with the
// tokens that config.json, generation_config.json, the tokenizer's files and the chat template name
// together. `text` outlives the result. `bundler` tells the tokenizer's files, if there are any; it
// was made before `text` was read, so that it does not tell others.
server::ServedModel DescribeModel(const WorkerConfig& config, const model::LoadedModel& model,
                                  const text::TextModel* text, Heads heads = {},
                                  std::shared_ptr<text::TokenizerBundler> bundler = nullptr);

// An adapter of a model, `base`, as a model of its own that cannot run: by its name and digest.
server::ServedModel DescribeAdapter(const server::ServedModel& base, const std::string& name,
                                    const model::Digest128& digest);
// The same that can run.
server::ServedModel DescribeAdapter(const server::ServedModel& base,
                                    const model::LoadedAdapter& adapter);
// Adapters of a model, `base`, as models of their own.
std::vector<server::ServedModel> DescribeAdapters(
    const server::ServedModel& base, const std::vector<model::LoadedAdapter>& adapters);

// The tokens of `ids` as a log shows them: "1 <|begin|>, 2 <|end|>".
std::string ShowTokens(const std::vector<int32_t>& ids, const text::TextModel& text);

}  // namespace continuo::worker
