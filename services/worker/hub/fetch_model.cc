// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/fetch_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/hub/file_choice.h"
#include "services/worker/hub/hub_api.h"
#include "services/worker/hub/hub_cache.h"

namespace continuo::hub {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxIndexBytes = 64 << 20;

std::string NameOf(const HubReference& reference) {
  return absl::StrCat("hf://", reference.repository, "@", reference.revision);
}

absl::Status CheckSettings(const HubSettings& settings) {
  if (!settings.cache.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "there is no folder to fetch models to: set HF_HUB_CACHE, HF_HOME or HOME");
}

// Lists a snapshot as a hub would, without sizes and digests.
HubListing ListSnapshot(const HubCache& cache, const std::string& commit) {
  HubListing listing = {.commit = commit};
  std::error_code error;
  const fs::path root = cache.SnapshotPath(commit);
  for (auto entry = fs::recursive_directory_iterator(root, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().lexically_relative(root).string();
    // A link whose blob is gone is no file, and does not end the list.
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && IsPlainPath(path)) {
      listing.files.push_back({.path = path});
    }
  }
  return listing;
}

// True where the weights that the index tells of are all there.
bool HasIndexedFiles(const HubCache& cache, const std::string& commit, const FileChoice& choice) {
  if (std::ranges::find(choice.files, kWeightsIndex, &HubFile::path) == choice.files.end()) {
    return true;
  }
  const fs::path path = fs::path(cache.SnapshotPath(commit)) / kWeightsIndex;
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error || size > kMaxIndexBytes) return false;
  std::string text(size, '\0');
  if (!std::ifstream(path, std::ios::binary).read(text.data(), static_cast<int64_t>(size))) {
    return false;
  }
  const auto files = IndexedFiles(text);
  return files.ok() && std::ranges::all_of(*files, [&](const std::string& file) {
           return cache.HasFile(commit, file);
         });
}

std::string PathOf(const HubCache& cache, const std::string& commit, const FileChoice& choice) {
  const std::string folder = cache.SnapshotPath(commit);
  return choice.entry.empty() ? folder : absl::StrCat(folder, "/", choice.entry);
}

// Fetches the files of one choice.
class Fetcher {
 public:
  Fetcher(const HubReference& reference, const FetchOptions& options, const HubCache& cache,
          std::string commit)
      : reference_(reference), options_(options), cache_(cache), commit_(std::move(commit)) {}

  absl::Status Fetch(const FileChoice& choice) {
    RETURN_IF_ERROR(cache_.MakeFolders());
    RETURN_IF_ERROR(CheckSpace(choice));
    for (const HubFile& file : choice.files) {
      RETURN_IF_ERROR(FetchFile(file));
      RETURN_IF_ERROR(cache_.Link(commit_, file.path, file.digest));
    }
    return cache_.WriteRef(reference_.revision, commit_);
  }

 private:
  absl::Status CheckSpace(const FileChoice& choice) const {
    uint64_t needed = 0;
    for (const HubFile& file : choice.files) {
      std::error_code error;
      const auto size = static_cast<uint64_t>(file.size);
      if (fs::exists(cache_.BlobPath(file.digest), error)) continue;
      const uint64_t there = fs::file_size(cache_.PartPath(file.digest), error);
      needed += size - (error ? 0 : std::min(there, size));
    }
    const std::optional<uint64_t> free = cache_.FreeBytes();
    if (!free.has_value() || needed <= *free) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(NameOf(reference_), ": ", needed,
                                                     " bytes are to be fetched, and ",
                                                     cache_.folder(), " has room for ", *free));
  }

  absl::Status FetchFile(const HubFile& file) {
    Tell({.kind = FetchProgress::Kind::kFile, .file = file.path, .total = file.size});
    ASSIGN_OR_RETURN(const std::unique_ptr<HubCache::Lock> lock, cache_.LockBlob(file.digest, [&] {
      Tell({.kind = FetchProgress::Kind::kWaiting, .file = file.path});
    }));
    absl::Duration told = options_.clock->Elapsed();
    RETURN_IF_ERROR(Download(options_.settings, reference_, cache_, commit_, file, options_.retry,
                             [&](int64_t bytes) {
                               const absl::Duration now = options_.clock->Elapsed();
                               if (now - told < options_.progress_interval) return;
                               told = now;
                               Tell({.kind = FetchProgress::Kind::kFile,
                                     .file = file.path,
                                     .done = bytes,
                                     .total = file.size});
                             }));
    Tell({.kind = FetchProgress::Kind::kFile,
          .file = file.path,
          .done = file.size,
          .total = file.size});
    return absl::OkStatus();
  }

  void Tell(const FetchProgress& progress) const {
    if (options_.on_progress != nullptr) options_.on_progress(progress);
  }

  const HubReference& reference_;
  const FetchOptions& options_;
  const HubCache& cache_;
  const std::string commit_;
};

}  // namespace

absl::StatusOr<std::string> FindInCache(const HubReference& reference,
                                        const HubSettings& settings) {
  RETURN_IF_ERROR(CheckSettings(settings));
  const HubCache cache(settings.cache, reference.repository);
  const std::string commit = cache.CommitOf(reference.revision);
  const absl::Status missing =
      absl::NotFoundError(absl::StrCat(NameOf(reference), ": is not in ", cache.folder(), " yet"));
  if (commit.empty()) return missing;
  const absl::StatusOr<FileChoice> choice = ChooseFiles(ListSnapshot(cache, commit), reference);
  if (!choice.ok() || !HasIndexedFiles(cache, commit, *choice)) return missing;
  return PathOf(cache, commit, *choice);
}

absl::StatusOr<std::string> FetchModel(const HubReference& reference, const FetchOptions& options) {
  RETURN_IF_ERROR(CheckSettings(options.settings));
  const HubCache cache(options.settings.cache, reference.repository);
  absl::StatusOr<HubListing> listing =
      absl::UnavailableError("HF_HUB_OFFLINE is set, so the hub is not asked");
  if (!options.settings.offline) {
    listing = ListFiles(options.settings, reference, options.retry.limits);
  }
  if (absl::IsUnavailable(listing.status())) {
    const std::string why(listing.status().message());
    absl::StatusOr<std::string> found = FindInCache(reference, options.settings);
    if (!found.ok()) {
      return absl::UnavailableError(
          absl::StrCat(found.status().message(), ", and the hub cannot be asked for it: ", why,
                       "; HF_ENDPOINT names another hub, https_proxy a proxy"));
    }
    if (options.on_progress != nullptr) {
      options.on_progress({.kind = FetchProgress::Kind::kOffline, .file = why});
    }
    return found;
  }
  RETURN_IF_ERROR(listing.status());
  ASSIGN_OR_RETURN(const FileChoice choice, ChooseFiles(*listing, reference));
  RETURN_IF_ERROR(Fetcher(reference, options, cache, listing->commit).Fetch(choice));
  return PathOf(cache, listing->commit, choice);
}

}  // namespace continuo::hub
