// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/bundle/tokenizer_bundle.h"

#include <openssl/evp.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/gguf/gguf_tokenizer.h"
#include "services/worker/text/bundle/zip_archive.h"
#include "services/worker/text/tokenizer_files/tokenizer_files.h"

namespace continuo::text {
namespace {

namespace fs = std::filesystem;

// What belongs to the file that the tokenizer is read from.
constexpr std::string_view kCompanions[] = {"tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "chat_template.jinja",
                                            "chat_template.json",
                                            "config.json",
                                            "generation_config.json"};

absl::Status NotBundled(const absl::Status& why) {
  if (why.ok()) return why;
  return absl::FailedPreconditionError(
      absl::StrCat("the tokenizer's files are not told: ", why.message()));
}

std::string Sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
}

// The folder that links in a model's folder may lead to: that of a hub's cache
// (models--org--name/snapshots/REVISION), which keeps the files themselves elsewhere, or itself.
fs::path RootOf(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path(), cache = snapshots.parent_path();
  const bool is_cached =
      snapshots.filename() == "snapshots" && cache.filename().string().starts_with("models--");
  return is_cached ? cache : folder;
}

}  // namespace

TokenizerBundler::TokenizerBundler(const std::string& model_path)
    : is_gguf_(gguf::IsGguf(model_path)), model_path_(model_path), found_(Look()) {}

absl::Status TokenizerBundler::Look() {
  std::error_code error;
  const fs::path path = fs::canonical(model_path_, error);
  if (error) return absl::NotFoundError(absl::StrCat("the model: ", error.message()));
  const fs::path folder = is_gguf_ ? path.parent_path() : path;
  const fs::path root = is_gguf_ ? folder : RootOf(folder);
  ASSIGN_OR_RETURN(ConfinedFolder confined, ConfinedFolder::Open(root.string()));
  folder_ = std::make_unique<const ConfinedFolder>(std::move(confined));
  if (is_gguf_) return AddFile(path.filename().string(), path.string());

  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  if (error) return absl::NotFoundError(absl::StrCat("the model's folder: ", error.message()));
  ASSIGN_OR_RETURN(const std::string tokenizer, ChooseTokenizer(names));
  if (tokenizer.empty()) {
    return absl::NotFoundError("the model's folder has no tokenizer");
  }
  RETURN_IF_ERROR(AddFile(tokenizer, (folder / tokenizer).string()));
  for (const std::string_view name : kCompanions) {
    const fs::path companion = folder / name;
    if (!fs::exists(fs::symlink_status(companion, error))) continue;
    RETURN_IF_ERROR(AddFile(std::string(name), companion.string()));
  }
  return absl::OkStatus();
}

absl::Status TokenizerBundler::AddFile(const std::string& name, const std::string& path) {
  ASSIGN_OR_RETURN(std::string stamp, folder_->Stamp(path));
  files_.push_back({name, path, std::move(stamp)});
  return absl::OkStatus();
}

absl::Status TokenizerBundler::CheckStamps() const {
  for (const File& file : files_) {
    ASSIGN_OR_RETURN(const std::string stamp, folder_->Stamp(file.path));
    if (stamp == file.stamp) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(file.name, " was changed after the model was loaded"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerBundle> TokenizerBundler::Make() const {
  RETURN_IF_ERROR(found_);
  // What was changed need not be read.
  RETURN_IF_ERROR(CheckStamps());
  std::vector<ZipEntry> entries;
  if (is_gguf_) {
    ASSIGN_OR_RETURN(const gguf::GgufFile file, gguf::GgufFile::Open(model_path_));
    ASSIGN_OR_RETURN(gguf::TokenizerTexts texts, gguf::TokenizerOf(file));
    entries.push_back({"tokenizer.json", std::move(texts.tokenizer)});
    entries.push_back({"tokenizer_config.json", std::move(texts.tokenizer_config)});
  } else {
    size_t left = kMaxBytes;
    for (const File& file : files_) {
      ASSIGN_OR_RETURN(std::string bytes, folder_->ReadFile(file.path, static_cast<int64_t>(left)));
      left -= bytes.size();
      entries.push_back({file.name, std::move(bytes)});
    }
  }
  // They may have become others while they were read.
  RETURN_IF_ERROR(CheckStamps());
  TokenizerBundle bundle;
  ASSIGN_OR_RETURN(bundle.zip, MakeZip(entries));
  bundle.sha256 = Sha256(bundle.zip);
  return bundle;
}

void TokenizerBundler::MakeForAll() {
  absl::StatusOr<TokenizerBundle> made = Make();
  // A file that was changed stays so: an error is as good the next time.
  const Result result = made.ok()
                            ? Result(std::make_shared<const TokenizerBundle>(*std::move(made)))
                            : Result(NotBundled(made.status()));
  std::vector<Done> waiting;
  {
    absl::MutexLock lock(&mutex_);
    result_ = result;
    waiting = std::exchange(waiting_, {});
  }
  for (const Done& done : waiting) done(result);
}

void TokenizerBundler::Get(absl::FunctionRef<void(std::function<void()>)> post, Done done) {
  std::optional<Result> result;
  bool is_first = false;
  {
    absl::MutexLock lock(&mutex_);
    result = result_;
    if (!result.has_value()) {
      is_first = waiting_.empty();
      waiting_.push_back(std::move(done));
    }
  }
  if (result.has_value()) {
    done(*result);
  } else if (is_first) {
    post([this] { MakeForAll(); });
  }
}

}  // namespace continuo::text
