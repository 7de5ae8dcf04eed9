// SPDX-License-Identifier: Apache-2.0
// ReadModelConfig: where the texts of a configuration come from.
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/gguf_config.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

// Reads the configuration that a GGUF file's metadata has.
absl::StatusOr<ModelConfig> ReadGgufConfig(const std::string& path, std::string_view allow_unread) {
  ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(path));
  ASSIGN_OR_RETURN(const gguf::Architecture* const architecture, gguf::FindArchitecture(file));
  ASSIGN_OR_RETURN(const gguf::ConfigTexts texts, gguf::ConfigOf(file));
  absl::StatusOr<ModelConfig> config =
      ParseModelConfig(texts.config, texts.generation_config, allow_unread);
  if (!config.ok()) {
    return absl::Status(config.status().code(),
                        absl::StrCat(path, ": its metadata, as the files that it was made of: ",
                                     config.status().message()));
  }
  if (architecture->gains_include_one) config->gains_less_one = false;
  config->latent.splits_kv = gguf::SplitsLatent(file);
  if (architecture->splits_qkvz) config->names = WeightNames::kQwen3NextParts;
  if (architecture->splits_shared_mlp) {
    if (config->names == WeightNames::kHybrid) config->names = WeightNames::kHybridParts;
    config->experts.names = ExpertNames::kGraniteParts;
  }
  return config;
}

// Names the GGUF files of a folder.
std::string GgufFilesOf(const std::filesystem::path& dir) {
  std::string names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    if (entry.path().extension() != ".gguf") continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", entry.path().filename().string());
  }
  return names;
}

// Says what is at the place of a model that has no config.json.
absl::Status MissingConfig(const std::filesystem::path& dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir, ignored)) {
    return absl::NotFoundError(absl::StrCat(dir.string(), ": there is no such folder"));
  }
  std::string hint;
  if (std::filesystem::exists(dir / "snapshots", ignored)) {
    hint = "; it looks like a hub's cache: give the folder of one of its snapshots";
  } else if (std::filesystem::exists(dir / "params.json", ignored)) {
    hint = "; params.json is of another format: give the model's Hugging Face folder";
  } else if (std::filesystem::exists(dir / "adapter_config.json", ignored)) {
    hint = "; it is a LoRA adapter: merge it into its model";
  } else if (const std::string names = GgufFilesOf(dir); !names.empty()) {
    hint = absl::StrCat("; it has GGUF files, give one of them: ", names.substr(0, 400));
  }
  return absl::NotFoundError(absl::StrCat(dir.string(), ": has no config.json", hint));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& dir, std::string_view allow_unread) {
  const std::filesystem::path path(dir);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    if (gguf::IsGguf(dir)) return ReadGgufConfig(dir, allow_unread);
    const std::string foreign = ForeignFileAt(dir);
    return absl::InvalidArgumentError(
        absl::StrCat(dir, ": is a file, neither GGUF nor a model's Hugging Face folder",
                     foreign.empty() ? "" : absl::StrCat("; it ", foreign)));
  }
  absl::StatusOr<std::string> config =
      ReadSmallFile((path / "config.json").string(), kMaxConfigBytes);
  if (absl::IsNotFound(config.status())) return MissingConfig(path);
  RETURN_IF_ERROR(config.status());
  absl::StatusOr<std::string> generation =
      ReadSmallFile((path / "generation_config.json").string(), kMaxConfigBytes);
  if (absl::IsNotFound(generation.status())) return ParseModelConfig(*config, "", allow_unread);
  RETURN_IF_ERROR(generation.status());
  if (generation->empty()) return CheckJson("generation_config.json", "", 1);
  return ParseModelConfig(*config, *generation, allow_unread);
}

}  // namespace continuo::model
