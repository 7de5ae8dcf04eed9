// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model_task.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/embedding/sentence_modules.h"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/model/description/config.h"

namespace continuo::worker {
namespace {

using embedding::SentenceModules;

// Values of ARCHITECTURE.pooling_type (llama_pooling_type of llama.cpp).
constexpr int64_t kNoPooling = 0, kLastPooling = 3;

// Without modules.json a decoder's vector is the last token's state, scaled to length 1, and an
// encoder's what sentence-transformers makes of such files: the mean of all states.
SentenceModules PlainModules(bool is_encoder) {
  if (is_encoder) return {.pooling = embedding::Pooling::kMean};
  return {.normalises = true};
}

absl::StatusOr<std::optional<SentenceModules>> ModulesOfGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(path));
  const std::string architecture(file.Text("general.architecture").value_or(""));
  const int64_t pooling =
      file.Whole(absl::StrCat(architecture, ".pooling_type")).value_or(kNoPooling);
  if (pooling == kNoPooling) return std::nullopt;
  if (pooling == kLastPooling) return PlainModules(/*is_encoder=*/false);
  return absl::UnimplementedError(
      absl::StrCat(path, ": ", architecture, ".pooling_type is ", pooling, "; known is ",
                   kLastPooling, ", the last token; --task=generate serves it as it is"));
}

absl::StatusOr<std::optional<SentenceModules>> ModulesOf(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored) && gguf::IsGguf(path)) {
    return ModulesOfGguf(path);
  }
  return embedding::ReadSentenceModules(path);
}

// The configuration of a folder. Empty for other files, and where something is wrong with it, which
// the load tells.
model::ModelConfig ConfigOfFolder(const WorkerConfig& config) {
  const std::string& path = config.load.source.dir;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {};
  absl::StatusOr<model::ModelConfig> read =
      model::ReadModelConfig(path, config.load.source.allow_unread);
  return read.ok() ? *std::move(read) : model::ModelConfig();
}

// What an encoder, or a decoder, cannot do of what its files say.
absl::Status CheckForm(const std::optional<SentenceModules>& modules, bool scores,
                       bool has_score_head, bool is_encoder) {
  if (is_encoder && scores && !has_score_head) {
    return absl::InvalidArgumentError(
        "--task=score: the model is an encoder, and config.json names no class for sequence "
        "classification, whose head would give scores");
  }
  if (!is_encoder && modules.has_value() && modules->pooling != embedding::Pooling::kLast) {
    return absl::UnimplementedError(
        "the Pooling of modules.json: a causal decoder's vector is the state behind the last token "
        "(lasttoken)");
  }
  return absl::OkStatus();
}

absl::StatusOr<embedding::ScoreOptions> ScoreOptionsOf(
    const std::optional<SentenceModules>& modules, bool has_head) {
  embedding::ScoreOptions options = {.has_head = has_head};
  if (!modules.has_value()) return options;
  if (!modules->scores()) {
    return absl::InvalidArgumentError(
        "--task=score: the files have a pooling of states (the Pooling of modules.json, or "
        "pooling_type in a GGUF file), so the model makes embeddings");
  }
  if (modules->has_score_head && !has_head) {
    return absl::InvalidArgumentError(
        "modules.json has a Transformer alone, and config.json names no class for sequence "
        "classification, whose head would give scores");
  }
  options.tokens = modules->score;
  options.lowercases = modules->lowercases;
  const auto instruction =
      std::ranges::find(modules->prompts, modules->default_prompt, &embedding::Prompt::name);
  if (instruction != modules->prompts.end()) options.instruction = instruction->text;
  return options;
}

}  // namespace

absl::Status ApplyTask(WorkerConfig& config) {
  if (config.task == "generate") return absl::OkStatus();
  const std::string& path = config.load.source.dir;
  ASSIGN_OR_RETURN(std::optional<SentenceModules> modules, ModulesOf(path));
  const model::ModelConfig model = ConfigOfFolder(config);
  const bool has_score_head = model.has_score_head(), is_encoder = model.encoder.is_encoder;
  const bool scores =
      config.task == "score" ||
      (config.task == "auto" && (modules.has_value() ? modules->scores() : has_score_head));
  if (!scores && modules.has_value() && modules->scores()) {
    return absl::InvalidArgumentError(
        "--task=embed: modules.json says that the model makes scores");
  }
  if (!scores && !modules.has_value()) {
    if (config.task != "embed" && !is_encoder) return absl::OkStatus();
    modules = PlainModules(is_encoder);
  }
  RETURN_IF_ERROR(CheckForm(modules, scores, has_score_head, is_encoder));
  if (config.speculation == "draft" || config.speculation == "mtp") {
    return absl::InvalidArgumentError(absl::StrCat("--speculation=", config.speculation,
                                                   " is of answers, and the model makes ",
                                                   scores ? "scores" : "embeddings"));
  }
  config.speculation = "off";
  config.load.reads_states = true;
  int& context = config.load.source.max_context_tokens;
  if (modules.has_value() && modules->max_tokens > 0 && context == 0) {
    context = std::min(modules->max_tokens, model.context_length);
  }
  if (is_encoder) {
    // A text is computed in one step.
    int& most = config.load.max_batch_tokens;
    most = std::max(most, context == 0 ? model.context_length : context);
  }
  if (scores) {
    ASSIGN_OR_RETURN(config.score, ScoreOptionsOf(modules, has_score_head));
    config.load.needs_head = config.score->tokens.has_value() || !has_score_head;
  } else {
    config.embedding = std::move(modules);
  }
  return absl::OkStatus();
}

}  // namespace continuo::worker
