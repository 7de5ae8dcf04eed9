// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of shared tokens: those by which the programs of a fleet know each other (--token_file),
// and those of readers of metrics (--metrics_token_file).

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/base/watched_file.h"

namespace continuo::common {

// The metadata key of the token.
inline constexpr char kTokenMetadata[] = "x-continuo-token";

// The tokens of one version of the file. Immutable.
class Tokens {
 public:
  // A line is a token of 16 to 512 printable ASCII characters without spaces; spaces around it,
  // empty lines and lines that begin with # are skipped. There are 1 to 16. INVALID_ARGUMENT names
  // the line, never its content.
  static absl::StatusOr<Tokens> Parse(std::string_view text);

  // The token that is sent.
  const std::string& first() const { return first_; }
  // The SHA-256 of each, in their order.
  std::vector<std::array<uint8_t, 32>> digests() const { return digests_; }
  // Returns whether `token` is one of them. It takes the same time whichever one agrees, if any.
  bool Contain(std::string_view token) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view token);

  std::string first_;
  std::vector<Digest> digests_;
};

// Reads the tokens of a file. INVALID_ARGUMENT names --token_file and the file.
absl::StatusOr<Tokens> ReadTokens(const std::string& path);

// Tokens that follow their file: it is read every second, and a change holds from the next call on.
// A bad file is logged, and the tokens before stay. Thread-safe.
class TokenFile {
 public:
  // Fails as ReadTokens does, with the name of `flag`.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(
      const std::string& path, absl::Duration poll_interval = absl::Seconds(1),
      std::string_view flag = "token_file");

  std::shared_ptr<const Tokens> tokens() const {
    absl::MutexLock lock(&mutex_);
    return tokens_;
  }

  // Reads the file now.
  void Reload() { file_->Look(); }

 private:
  explicit TokenFile(Tokens tokens) : tokens_(std::make_shared<const Tokens>(std::move(tokens))) {}

  mutable absl::Mutex mutex_;
  std::shared_ptr<const Tokens> tokens_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<WatchedFile> file_;
};

// Returns whether a token is one of those of --metrics_token_file, for MetricsServer; null where
// `path` is empty, which asks for none. Fails as TokenFile::Open does.
absl::StatusOr<std::function<bool(std::string_view)>> OpenMetricsTokens(const std::string& path);

}  // namespace continuo::common
