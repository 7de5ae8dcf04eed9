// SPDX-License-Identifier: Apache-2.0
#include "services/worker/print_facts.h"

#include <utility>

#include "services/common/container.h"
#include "services/worker/describe/model_facts.h"
#include "services/worker/describe/registry_facts.h"
#include "services/worker/fetch_models.h"
#include "services/worker/plan_load.h"
#include "services/worker/serving.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {

namespace {

// Adds what the vectors or scores of `config` are made of, or what is wrong with it.
void AddHeads(const WorkerConfig& config, ModelFacts& facts) {
  if (!config.load.reads_states || !facts.config.has_value()) return;
  const auto text = text::TextModel::Open(config.load.source.dir);
  if (!text.ok()) return;  // ReadModelFacts has told it
  const absl::StatusOr<Heads> heads = LoadHeads(config, *facts.config, **text);
  if (!heads.ok()) {
    facts.problems.push_back(heads.status());
    return;
  }
  if (config.score.has_value()) {
    facts.score = ScoreFacts{.has_head = config.score->has_head && !config.score->tokens};
    return;
  }
  EmbeddingFacts& embedding = facts.embedding.emplace();
  embedding.dimensions = heads->embedding->dimensions();
  embedding.dense_modules = static_cast<int>(config.embedding->dense.size());
  embedding.normalises = heads->embedding->normalises();
  for (const embedding::Prompt& prompt : heads->embedding->prompts()) {
    embedding.prompts.push_back(prompt.name);
  }
}

}  // namespace

int PrintFacts(const WorkerConfig& config, std::ostream& out) {
  if (config.describe == "registry") {
    out << RegistryJson();
    return 0;
  }
  const absl::StatusOr<WorkerConfig> found =
      config.place_status.ok() ? FindFetchedModels(config)
                               : absl::StatusOr<WorkerConfig>(config.place_status);
  ModelFacts facts;
  if (found.ok()) {
    facts = ReadModelFacts(found->load, found->tool_format);
    AddHeads(*found, facts);
  } else {
    facts.path = config.load.source.dir;
    facts.problems.push_back(found.status());
  }
  facts.name = config.model_name;
  // On CUDA devices the loader decides about memory.
  if (facts.estimate.has_value() && config.load.device.device == "cpu") {
    facts.available_bytes = common::AvailableMemoryBytes();
    absl::StatusOr<model::LoadOptions> plan = PlanLoad(*found, facts.available_bytes);
    if (plan.ok()) {
      facts.num_blocks = plan->kv.num_blocks;
    } else {
      facts.problems.push_back(plan.status());
    }
  }
  out << (config.describe == "json" ? FactsJson(facts) : FactsText(facts));
  return facts.would_run() ? 0 : 1;
}

}  // namespace continuo::worker
