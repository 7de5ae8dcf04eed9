// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/file_choice.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/worker/hub/hub_json.h"
#include "services/worker/text/tokenizer_files/tokenizer_files.h"

namespace continuo::hub {
namespace {

constexpr std::string_view kTexts[] = {
    "config.json",           "generation_config.json",
    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json",     "chat_template.jinja",
    "chat_template.json",    "additional_chat_templates/tool_use.jinja"};
// What sentence-transformers writes beside a model, and in the folders of modules.json.
constexpr std::string_view kSentenceTexts[] = {"modules.json", "sentence_bert_config.json",
                                               "config_sentence_transformers.json"};
constexpr int kMaxParts = 4096;
constexpr std::string_view kGguf = ".gguf", kSafetensors = ".safetensors";

const HubFile* Find(const HubListing& listing, std::string_view path) {
  const auto found = std::ranges::find(listing.files, path, &HubFile::path);
  return found == listing.files.end() ? nullptr : &*found;
}

// The stem and number of a part, NAME-00002-of-00003.gguf; no value for a model of one file.
struct Part {
  std::string stem;
  int number = 0, count = 0;
  std::string_view extension;
};
std::optional<Part> PartOf(const std::string& path, std::string_view extension) {
  constexpr std::string_view kForm = "-00001-of-00003";
  if (path.size() <= kForm.size() + extension.size() || !path.ends_with(extension)) {
    return std::nullopt;
  }
  const size_t at = path.size() - extension.size() - kForm.size();
  Part part = {.stem = path.substr(0, at), .extension = extension};
  const bool is_part = path[at] == '-' && path.substr(at + 6, 4) == "-of-" &&
                       absl::SimpleAtoi(path.substr(at + 1, 5), &part.number) &&
                       absl::SimpleAtoi(path.substr(at + 10, 5), &part.count);
  const bool fits = part.number >= 1 && part.count >= part.number && part.count <= kMaxParts;
  return is_part && fits ? std::optional(part) : std::nullopt;
}

std::string PathOfPart(const Part& part, int number) {
  return absl::StrFormat("%s-%05d-of-%05d%s", part.stem, number, part.count, part.extension);
}

absl::Status MissingPart(const std::string& missing, const std::string& path) {
  return absl::NotFoundError(
      absl::StrCat("there is no ", missing, ", a part of the same model as ", path));
}

// Checks that numbered parts are all there.
absl::Status CheckParts(const std::vector<std::string>& paths) {
  const absl::flat_hash_set<std::string> present(paths.begin(), paths.end());
  absl::flat_hash_set<std::string> checked;  // first parts
  for (const std::string& path : paths) {
    const std::optional<Part> part = PartOf(path, kSafetensors);
    if (!part.has_value() || !checked.insert(PathOfPart(*part, 1)).second) continue;
    for (int i = 1; i <= part->count; ++i) {
      const std::string other = PathOfPart(*part, i);
      if (!present.contains(other)) return MissingPart(other, path);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FileChoice> GgufModel(const HubListing& listing, const std::string& path) {
  FileChoice choice = {.entry = path};
  const std::optional<Part> part = PartOf(path, kGguf);
  if (!part.has_value()) {
    choice.files.push_back(*Find(listing, path));
    return choice;
  }
  choice.entry = PathOfPart(*part, 1);
  for (int i = 1; i <= part->count; ++i) {
    const HubFile* const file = Find(listing, PathOfPart(*part, i));
    if (file == nullptr) return MissingPart(PathOfPart(*part, i), path);
    choice.files.push_back(*file);
  }
  return choice;
}

// The GGUF models, each by its file or its first part.
std::vector<std::string> GgufModels(const HubListing& listing) {
  std::vector<std::string> models;
  for (const HubFile& file : listing.files) {
    if (!absl::EndsWithIgnoreCase(file.path, ".gguf")) continue;
    // These have the part of a vision model that reads images.
    if (absl::StartsWith(file.path.substr(file.path.rfind('/') + 1), "mmproj")) continue;
    const std::optional<Part> part = PartOf(file.path, kGguf);
    if (!part.has_value() || part->number == 1) models.push_back(file.path);
  }
  return models;
}

std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

// A file of a module's folder, such as 1_Pooling/config.json or 2_Dense/model.safetensors.
bool IsOfModule(std::string_view path) {
  const size_t slash = path.find('/');
  if (slash == path.npos || slash == 0 || !absl::ascii_isdigit(static_cast<unsigned char>(path[0])))
    return false;
  const std::string_view file = path.substr(slash + 1);
  return file == "config.json" || file == "model.safetensors";
}

bool IsWeights(std::string_view path) {
  return path == "model.safetensors" ||
         (path.starts_with("model-") && path.ends_with(".safetensors"));
}

// The one that a worker would read.
absl::StatusOr<const HubFile*> FindTokenizer(const HubListing& listing, const std::string& name) {
  std::vector<std::string> names;
  for (const HubFile& file : listing.files) {
    if (file.path.find('/') == std::string::npos) names.push_back(file.path);
  }
  const absl::StatusOr<std::string> tokenizer = text::ChooseTokenizer(names);
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(name, ": ", tokenizer.status().message()));
  }
  if (!tokenizer->empty()) return Find(listing, *tokenizer);
  const auto kind = [](std::string* out, const text::TokenizerFile& file) {
    out->append(file.file);
  };
  return absl::NotFoundError(absl::StrCat(name,
                                          ": has none of the files that a tokenizer is read from: ",
                                          absl::StrJoin(text::TokenizerFiles(), ", ", kind)));
}

absl::StatusOr<FileChoice> FolderModel(const HubListing& listing, const std::string& name) {
  FileChoice choice;
  ASSIGN_OR_RETURN(const HubFile* const tokenizer, FindTokenizer(listing, name));
  for (const std::string_view text : kTexts) {
    if (const HubFile* const file = Find(listing, text)) choice.files.push_back(*file);
  }
  if (Find(listing, kSentenceTexts[0]) != nullptr) {
    for (const HubFile& file : listing.files) {
      const bool is_text = std::ranges::find(kSentenceTexts, file.path) != std::end(kSentenceTexts);
      if (is_text || IsOfModule(file.path)) choice.files.push_back(file);
    }
  }
  choice.files.push_back(*tokenizer);
  if (const HubFile* const whole = Find(listing, "model.safetensors"); whole != nullptr) {
    choice.files.push_back(*whole);
    return choice;
  }
  // The index says which weights there are, so a snapshot that has it can be checked.
  const HubFile* const index = Find(listing, kWeightsIndex);
  if (index != nullptr) choice.files.push_back(*index);
  std::vector<std::string> weights;
  for (const HubFile& file : listing.files) {
    if (file.path.find('/') != std::string::npos || !IsWeights(file.path)) continue;
    choice.files.push_back(file);
    weights.push_back(file.path);
  }
  if (index == nullptr) RETURN_IF_ERROR(CheckParts(weights));
  return choice;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> IndexedFiles(std::string_view index) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseHubJson(kWeightsIndex, index));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  std::set<std::string> files;
  const absl::Status none = absl::InvalidArgumentError(
      absl::StrCat(std::string(kWeightsIndex), ": has no weight_map of tensors and files"));
  if (map == json.end() || !map->is_object() || map->empty()) return none;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainPath(file.get_ref<const std::string&>())) return none;
    files.insert(file.get<std::string>());
  }
  return std::vector<std::string>(files.begin(), files.end());
}

absl::StatusOr<FileChoice> ChooseFiles(const HubListing& listing, const HubReference& reference) {
  const std::vector<std::string> gguf = GgufModels(listing);
  const std::string name = absl::StrCat("hf://", reference.repository);
  if (!reference.file.empty()) {
    if (Find(listing, reference.file) != nullptr) {
      if (!absl::EndsWithIgnoreCase(reference.file, ".gguf")) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, ": ", reference.file,
                         " is no GGUF file; models in safetensors are served whole"));
      }
      return GgufModel(listing, reference.file);
    }
    std::vector<std::string> named;
    const std::string word = absl::AsciiStrToLower(reference.file);
    for (const std::string& path : gguf) {
      if (absl::StrContains(absl::AsciiStrToLower(path), word)) named.push_back(path);
    }
    if (named.size() == 1) return GgufModel(listing, named[0]);
    if (named.empty()) {
      return absl::NotFoundError(absl::StrCat(name, ": has no file ", reference.file,
                                              gguf.empty() ? "" : "; its GGUF files are ",
                                              Listed(gguf)));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": several files are named so; give one of them: ", Listed(named)));
  }
  const bool has_weights =
      std::ranges::any_of(listing.files, [](const HubFile& file) { return IsWeights(file.path); });
  if (has_weights && Find(listing, "config.json") != nullptr) {
    return FolderModel(listing, name);
  }
  if (gguf.size() == 1) return GgufModel(listing, gguf[0]);
  if (gguf.empty()) {
    return absl::NotFoundError(absl::StrCat(
        name,
        ": has neither config.json with safetensors in the Hugging Face format nor GGUF files"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": has several GGUF models; give one of them (", name, ":FILE): ", Listed(gguf)));
}

}  // namespace continuo::hub
