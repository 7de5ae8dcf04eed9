// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model_place.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "services/base/status_macros.h"
#include "services/worker/hub/hub_reference.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kCachePrefix[] = "models--";
constexpr char kModelLayer[] = "application/vnd.ollama.image.model";
constexpr int64_t kMaxManifestBytes = 1 << 20;
constexpr size_t kDigestDigits = 64;

// The absolute path without "." and an ending slash.
fs::path Plain(const std::string& path) {
  std::error_code ignored;
  fs::path plain = fs::absolute(path, ignored).lexically_normal();
  return plain.has_filename() ? plain : plain.parent_path();
}

// "org/name" of a folder models--org--name; empty for others.
std::string NameInCache(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind(kCachePrefix, 0) != 0) return "";
  return absl::StrReplaceAll(name.substr(std::string_view(kCachePrefix).size()), {{"--", "/"}});
}

// The folder itself where `path` is a link to one, so that a link that moves during the load does
// not mix the files of two models.
std::string WithoutLinks(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path, error);
  return error ? path.string() : folder.string();
}

absl::StatusOr<fs::path> SnapshotOf(const fs::path& cache) {
  const fs::path snapshots = cache / "snapshots";
  std::error_code ignored;
  const absl::StatusOr<std::string> revision =
      model::ReadSmallFile((cache / "refs" / "main").string(), 256);
  if (revision.ok()) {
    const fs::path snapshot = snapshots / std::string(absl::StripAsciiWhitespace(*revision));
    if (snapshot.parent_path() == snapshots && fs::is_directory(snapshot, ignored)) return snapshot;
  }
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(snapshots, ignored)) {
    if (entry.is_directory(ignored)) all.push_back(entry.path());
  }
  if (all.size() == 1) return all[0];
  return absl::InvalidArgumentError(absl::StrCat(
      cache.string(), ": is a model's folder in a hub's cache, and ",
      all.empty() ? "it has no snapshot; download the model again"
                  : "refs/main leads to none of its snapshots; give the folder of one"));
}

// The file that an Ollama manifest names as the model; an empty path where `json` is no manifest.
absl::StatusOr<fs::path> BlobOf(const fs::path& manifest, const nlohmann::json& json) {
  const nlohmann::json* model = nullptr;
  if (!json.is_object() || !json.contains("layers") || !json["layers"].is_array())
    return fs::path();
  for (const nlohmann::json& layer : json["layers"]) {
    const std::string type =
        layer.is_object() ? layer.value("mediaType", nlohmann::json()).dump() : "";
    if (type == absl::StrCat("\"", kModelLayer, "\"")) model = &layer;
    if (type == "\"application/vnd.ollama.image.adapter\"" ||
        type == "\"application/vnd.ollama.image.projector\"") {
      return absl::InvalidArgumentError(absl::StrCat(manifest.string(), ": has a layer of type ",
                                                     type, ", which is not applied"));
    }
  }
  if (model == nullptr) return fs::path();
  const nlohmann::json digest = model->value("digest", nlohmann::json());
  std::string text = digest.is_string() ? digest.get<std::string>() : "";
  const bool is_digest = text.rfind("sha256:", 0) == 0 && text.size() == 7 + kDigestDigits &&
                         std::all_of(text.begin() + 7, text.end(), [](char c) {
                           return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                         });
  if (!is_digest) {
    return absl::InvalidArgumentError(
        absl::StrCat(manifest.string(), ": the model's layer has no sha256 digest"));
  }
  text[6] = '-';
  std::error_code ignored;
  for (fs::path folder = manifest.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (fs::is_directory(folder / "blobs", ignored)) {
      if (fs::exists(folder / "blobs" / text, ignored)) return folder / "blobs" / text;
      break;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(manifest.string(), ": names ", text,
                                                 ", which is not in the store's folder blobs"));
}

absl::StatusOr<ModelPlace> PlaceOfFile(const std::string& path, const fs::path& plain) {
  ModelPlace place{.path = path, .name = plain.stem().string()};
  std::error_code error;
  if (fs::file_size(plain, error) > kMaxManifestBytes || error) return place;
  const absl::StatusOr<std::string> text = model::ReadSmallFile(plain.string(), kMaxManifestBytes);
  if (!text.ok() || text->empty() || text->front() != '{') return place;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return place;
  ASSIGN_OR_RETURN(const fs::path blob, BlobOf(plain, json));
  if (blob.empty()) return place;
  const std::string tag = plain.filename().string();
  place.path = blob.string();
  place.name = plain.parent_path().filename().string();
  if (tag != "latest") absl::StrAppend(&place.name, ":", tag);
  return place;
}

}  // namespace

absl::StatusOr<ModelPlace> FindModelPlace(const std::string& path) {
  if (hub::IsHubReference(path)) {
    ASSIGN_OR_RETURN(const hub::HubReference reference, hub::ParseHubReference(path));
    return ModelPlace{.path = path, .name = reference.repository};
  }
  const fs::path plain = Plain(path);
  std::error_code ignored;
  if (fs::is_regular_file(plain, ignored)) return PlaceOfFile(path, plain);
  ModelPlace place{.path = path, .name = plain.filename().string()};
  if (place.name.empty()) place.name = "model";
  if (!fs::is_directory(plain, ignored)) return place;
  fs::path folder = plain;
  if (const std::string name = NameInCache(plain);
      !name.empty() && fs::is_directory(plain / "snapshots", ignored)) {
    place.name = name;
    ASSIGN_OR_RETURN(folder, SnapshotOf(plain));
  } else if (plain.parent_path().filename() == "snapshots") {
    const std::string parent = NameInCache(plain.parent_path().parent_path());
    if (!parent.empty()) place.name = parent;
  }
  place.path = WithoutLinks(folder);
  return place;
}

}  // namespace continuo::worker
