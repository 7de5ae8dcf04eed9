// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_files.h"

#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

constexpr char kConfig[] = "adapter_config.json";
constexpr char kTensors[] = "adapter_model.safetensors";
constexpr std::string_view kRoot = "base_model.model.";
constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

// What stands in front of "layers." in the names of modules of transformers' classes.
constexpr std::string_view kBodies[] = {
    "model.", "", "model.language_model.", "language_model.model.", "language_model.", "backbone."};

struct Reason {
  std::string_view part;  // of a name
  std::string_view why;
};

constexpr Reason kReasons[] = {
    {"lora_embedding_", "adapters of embeddings are not supported"},
    {"lora_magnitude_vector", "DoRA is not supported"},
    {".bias", "biases of adapters are not supported"},
    {"modules_to_save", "modules that are saved whole are not supported"},
    {"base_layer", "the names of matrices end in lora_A.weight or lora_B.weight"},
    {"embed_tokens", "embeddings that were trained beside the adapter are not supported"},
    {"lm_head", "a head that was trained beside the adapter is not supported"}};

std::string Shown(std::string_view text) { return ShowJson(nlohmann::json(std::string(text))); }

// The name as ListWeights' begin.
std::string CanonicalOf(std::string_view module) {
  constexpr std::string_view kLayers = "layers.";
  for (const std::string_view body : kBodies) {
    if (module.starts_with(body) && module.substr(body.size()).starts_with(kLayers)) {
      return absl::StrCat("model.", std::string(module.substr(body.size())));
    }
  }
  return std::string(module);
}

absl::Status CheckTensor(const StoredTensor& tensor, bool is_a, int rank) {
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTensors, ": tensor ", Shown(tensor.name), " ", parts...));
  };
  if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16") {
    return error("has the type ", Shown(tensor.dtype), "; F32, F16 and BF16 are supported");
  }
  if (tensor.shape.size() != 2 || tensor.shape[is_a ? 0 : 1] != rank) {
    return error("has the shape [", absl::StrJoin(tensor.shape, ", "),
                 "]; adapter_config.json gives it ", rank, is_a ? " rows" : " columns");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<AdapterModule>> PairTensors(const AdapterConfig& config,
                                                       std::span<const StoredTensor> tensors) {
  struct Pair {
    const StoredTensor *a = nullptr, *b = nullptr;
  };
  std::map<std::string_view, Pair> pairs;
  for (const StoredTensor& tensor : tensors) {
    std::string_view name = tensor.name;
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kRoot) || !(is_a || name.ends_with(kB)) ||
        name.size() <= kRoot.size() + kA.size()) {
      std::string_view why = "it is none of a LoRA matrix";
      for (const Reason& reason : kReasons) {
        if (name.find(reason.part) != name.npos) {
          why = reason.why;
          break;
        }
      }
      return absl::UnimplementedError(
          absl::StrCat(kTensors, ": tensor ", Shown(name), "; ", std::string(why)));
    }
    name.remove_prefix(kRoot.size());
    name.remove_suffix(kA.size());
    Pair& pair = pairs[name];
    (is_a ? pair.a : pair.b) = &tensor;
  }
  if (pairs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kTensors, ": has no tensors"));
  }
  if (pairs.size() > kMaxAdapterModules) {
    return absl::InvalidArgumentError(absl::StrCat(kTensors, ": has ", pairs.size(),
                                                   " modules; it may have ", kMaxAdapterModules));
  }
  std::vector<AdapterModule> modules;
  for (const auto& [name, pair] : pairs) {
    if (pair.a == nullptr || pair.b == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(kTensors, ": module ", Shown(name), " has no ",
                                                     pair.a == nullptr ? "lora_A" : "lora_B"));
    }
    ASSIGN_OR_RETURN(const AdapterConfig::Module found, config.Find(name));
    RETURN_IF_ERROR(CheckTensor(*pair.a, /*is_a=*/true, found.rank));
    RETURN_IF_ERROR(CheckTensor(*pair.b, /*is_a=*/false, found.rank));
    modules.push_back({.name = std::string(name),
                       .canonical = CanonicalOf(name),
                       .rank = found.rank,
                       .factor = found.factor,
                       .a = *pair.a,
                       .b = *pair.b});
  }
  return modules;
}

absl::StatusOr<AdapterFiles> AdapterFiles::Open(const std::string& dir) {
  const std::filesystem::path folder(dir);
  ASSIGN_OR_RETURN(const std::string config,
                   ReadSmallFile((folder / kConfig).string(), kMaxAdapterConfigBytes));
  AdapterFiles files;
  absl::StatusOr<std::unique_ptr<MappedFile>> mapped =
      MappedFile::Open((folder / kTensors).string());
  std::error_code error;
  if (absl::IsNotFound(mapped.status()) &&
      std::filesystem::exists(folder / "adapter_model.bin", error)) {
    return absl::NotFoundError(
        absl::StrCat(dir, ": has no ", kTensors,
                     "; it has adapter_model.bin, which is a PyTorch pickle: convert it"));
  }
  RETURN_IF_ERROR(mapped.status());
  files.file_ = *std::move(mapped);
  ASSIGN_OR_RETURN(files.modules_, Parse(config, files.file_->bytes()));
  return files;
}

absl::StatusOr<AdapterFiles> AdapterFiles::Read(const ConfinedFolder& root, const std::string& dir,
                                                int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::filesystem::path folder, root.Resolve(dir));
  ASSIGN_OR_RETURN(const std::string config,
                   root.ReadFile((folder / kConfig).string(), kMaxAdapterConfigBytes));
  ASSIGN_OR_RETURN(std::string tensors, root.ReadFile((folder / kTensors).string(), max_bytes));
  AdapterFiles files;
  files.copied_ = std::make_unique<const std::string>(std::move(tensors));
  const auto* const data = reinterpret_cast<const uint8_t*>(files.copied_->data());
  ASSIGN_OR_RETURN(files.modules_, Parse(config, {data, files.copied_->size()}));
  return files;
}

absl::StatusOr<std::string> AdapterFiles::Stamp(const ConfinedFolder& root,
                                                const std::string& dir) {
  ASSIGN_OR_RETURN(const std::filesystem::path folder, root.Resolve(dir));
  ASSIGN_OR_RETURN(const std::string config, root.Stamp((folder / kConfig).string()));
  ASSIGN_OR_RETURN(const std::string tensors, root.Stamp((folder / kTensors).string()));
  return absl::StrCat(config, "; ", tensors);
}

absl::StatusOr<std::vector<AdapterModule>> AdapterFiles::Parse(std::string_view config,
                                                               std::span<const uint8_t> tensors) {
  ASSIGN_OR_RETURN(const AdapterConfig parsed, AdapterConfig::Parse(config));
  ASSIGN_OR_RETURN(const std::vector<StoredTensor> stored, ParseSafetensors(kTensors, tensors));
  return PairTensors(parsed, stored);
}

}  // namespace continuo::model
