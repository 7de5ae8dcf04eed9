// SPDX-License-Identifier: Apache-2.0
#include "services/worker/describe/model_facts.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/text/text_model.h"

namespace continuo::worker {
namespace {

// Adds a problem unless an earlier one says the same.
void AddProblem(absl::Status status, ModelFacts& facts) {
  const bool is_told = std::any_of(facts.problems.begin(), facts.problems.end(),
                                   [&](const absl::Status& s) { return s == status; });
  if (!status.ok() && !is_told) facts.problems.push_back(std::move(status));
}

std::vector<StoredFacts> StoredOf(const model::Checkpoint& checkpoint) {
  std::map<std::string, StoredFacts> by_type;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    StoredFacts& facts = by_type[tensor.dtype];
    facts.type = tensor.dtype;
    ++facts.tensors;
    facts.bytes += tensor.num_bytes();
  }
  std::vector<StoredFacts> stored;
  for (auto& [type, facts] : by_type) stored.push_back(std::move(facts));
  std::stable_sort(stored.begin(), stored.end(),
                   [](const StoredFacts& a, const StoredFacts& b) { return a.bytes > b.bytes; });
  return stored;
}

absl::StatusOr<TextFacts> ReadTextFacts(const std::string& path, const std::string& tool_format,
                                        const model::ModelConfig* config, ModelFacts& facts) {
  auto opened = text::TextModel::Open(path);
  if (!opened.ok()) return opened.status();
  text::TextModel& text = **opened;
  if (tool_format != "auto") {
    if (const absl::Status status = text.UseResponseFormat(tool_format); !status.ok())
      return status;
  }
  facts.warnings.insert(facts.warnings.end(), text.warnings().begin(), text.warnings().end());
  if (!text.response_template_status().ok()) {
    facts.warnings.push_back(absl::StrCat("the model's response_template is not used: ",
                                          text.response_template_status().message()));
  }
  TextFacts result = {.tokenizer_source = std::string(text.tokenizer_source()),
                      .tokenizer_kind = std::string(text.tokenizer_kind()),
                      .num_tokens = text.vocab_size(),
                      .has_chat_template = text.has_chat_template(),
                      .tool_format = text.response_format().name};
  const std::vector<int32_t> known =
      config == nullptr ? std::vector<int32_t>() : config->defaults.eos_token_ids;
  std::vector<int32_t> ends = known;
  for (const int32_t id : text.EndIds(known)) {
    if (config == nullptr || id < config->vocab_size) ends.push_back(id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  for (const int32_t id : ends) {
    std::string token(text.TokenBytesKeepSpecial(id));
    absl::StripAsciiWhitespace(&token);
    result.end_tokens.push_back({id, std::move(token)});
  }
  if (ends.empty()) {
    facts.warnings.push_back(
        "the model names no token that ends an answer: answers go on to max_tokens");
  }
  return result;
}

}  // namespace

ModelFacts ReadModelFacts(const model::LoadOptions& options, const std::string& tool_format) {
  const std::string& path = options.source.dir;
  ModelFacts facts;
  facts.path = path;
  facts.block_size = options.kv.block_size;
  absl::StatusOr<model::ModelConfig> config =
      model::ReadModelConfig(path, options.source.allow_unread);
  AddProblem(config.status(), facts);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return facts;
  if (config.ok()) {
    facts.num_parameters = model::NumParameters(*config);
    facts.warnings = config->warnings;
    facts.config = *std::move(config);
  }
  const absl::StatusOr<model::Checkpoint> checkpoint = model::Checkpoint::Open(path);
  AddProblem(checkpoint.status(), facts);
  if (checkpoint.ok()) {
    if (facts.config.has_value()) {
      const std::string skipped = model::DescribeSkipped(*facts.config, *checkpoint);
      if (!skipped.empty()) facts.warnings.push_back(skipped);
    }
    facts.container = gguf::IsGguf(path) ? "GGUF" : "safetensors";
    facts.stored = StoredOf(*checkpoint);
  }
  if (facts.problems.empty()) {
    absl::StatusOr<model::LoadEstimate> estimate = model::EstimateLoad(options);
    AddProblem(estimate.status(), facts);
    if (estimate.ok()) facts.estimate = *std::move(estimate);
  }
  const model::ModelConfig* known = facts.config.has_value() ? &*facts.config : nullptr;
  absl::StatusOr<TextFacts> text = ReadTextFacts(path, tool_format, known, facts);
  AddProblem(text.status(), facts);
  if (text.ok()) facts.text = *std::move(text);
  return facts;
}

}  // namespace continuo::worker
