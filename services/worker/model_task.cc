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

// Without modules.json a vector is the last token's state, scaled to length 1.
SentenceModules PlainModules() { return {.normalises = true}; }

absl::StatusOr<std::optional<SentenceModules>> ModulesOfGguf(const std::string& path) {
  ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(path));
  const std::string architecture(file.Text("general.architecture").value_or(""));
  const int64_t pooling =
      file.Whole(absl::StrCat(architecture, ".pooling_type")).value_or(kNoPooling);
  if (pooling == kNoPooling) return std::nullopt;
  if (pooling == kLastPooling) return PlainModules();
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

}  // namespace

absl::Status ApplyTask(WorkerConfig& config) {
  if (config.task == "generate") return absl::OkStatus();
  const std::string& path = config.load.source.dir;
  ASSIGN_OR_RETURN(std::optional<SentenceModules> modules, ModulesOf(path));
  if (!modules.has_value() && config.task == "embed") modules = PlainModules();
  if (!modules.has_value()) return absl::OkStatus();
  if (config.speculation == "draft" || config.speculation == "mtp") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--speculation=", config.speculation, " is of answers, and the model makes embeddings"));
  }
  config.speculation = "off";
  config.load.reads_states = true;
  int& context = config.load.source.max_context_tokens;
  if (modules->max_tokens > 0 && context == 0) {
    const absl::StatusOr<model::ModelConfig> model =
        model::ReadModelConfig(path, config.load.source.allow_unread);
    RETURN_IF_ERROR(model.status());
    context = std::min(modules->max_tokens, model->context_length);
  }
  config.embedding = std::move(modules);
  return absl::OkStatus();
}

}  // namespace continuo::worker
