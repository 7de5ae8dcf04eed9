// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/base/confined_folder.h"

namespace continuo::text {

// The files by which others make the same tokens and prompts of texts, as one zip archive.
struct TokenizerBundle {
  std::string zip;
  std::string sha256;  // of `zip`, in lower-case hex
};

// Makes the bundle of a model that was loaded: of a folder the tokenizer's and the chat template's
// files, config.json and generation_config.json; of a GGUF file tokenizer.json and
// tokenizer_config.json as Hugging Face would have them. Nothing else in the folder is read, and no
// link that leads out of it, or out of the hub's cache that it is in. Thread-safe.
class TokenizerBundler {
 public:
  // The most bytes of all files together.
  static constexpr size_t kMaxBytes = 128 << 20;

  // Notes which files there are, so that others are not taken for them later.
  explicit TokenizerBundler(const std::string& model_path);

  using Result = absl::StatusOr<std::shared_ptr<const TokenizerBundle>>;
  using Done = std::function<void(const Result&)>;
  // Calls `done` once with the bundle, which is made once, as is an error: at once where it is
  // there. Otherwise the first caller posts the work, which may take a second, to a thread where
  // all who wait are called; the bundler outlives it. FailedPrecondition names the file that is not
  // to be read, or was changed since the bundler was made.
  void Get(absl::FunctionRef<void(std::function<void()>)> post, Done done);

 private:
  struct File {
    std::string name, path;  // `path` is absolute
    std::string stamp;
  };

  // Finds the folder and the files, with their stamps.
  absl::Status Look();
  absl::Status AddFile(const std::string& name, const std::string& path);
  absl::Status CheckStamps() const;
  absl::StatusOr<TokenizerBundle> Make() const;
  // Makes the bundle, and calls those who wait.
  void MakeForAll();

  const bool is_gguf_;
  const std::string model_path_;
  std::unique_ptr<const ConfinedFolder> folder_;
  std::vector<File> files_;
  const absl::Status found_;  // what Look returned; it sets the two above

  absl::Mutex mutex_;
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mutex_);  // not empty: the work was posted
};

}  // namespace continuo::text
