// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/token_file.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/log.h"

namespace continuo::common {
namespace {

constexpr size_t kMinTokenBytes = 16, kMaxTokenBytes = 512, kMaxTokens = 16;
constexpr uint64_t kMaxFileBytes = 64 << 10;

constexpr std::string_view kTokenFlag = "token_file";

absl::Status BadFile(std::string_view flag, const std::string& path, const absl::Status& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", std::string(flag), ": \"", path, "\": ", std::string(why.message())));
}

absl::StatusOr<std::string> ReadText(std::string_view flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) return BadFile(flag, path, text.status());
  return text;
}

absl::StatusOr<Tokens> ParseText(std::string_view flag, const std::string& path,
                                 std::string_view text) {
  absl::StatusOr<Tokens> tokens = Tokens::Parse(text);
  if (!tokens.ok()) return BadFile(flag, path, tokens.status());
  return tokens;
}

}  // namespace

Tokens::Digest Tokens::DigestOf(std::string_view token) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest.data());
  return digest;
}

absl::StatusOr<Tokens> Tokens::Parse(std::string_view text) {
  Tokens tokens;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && absl::ascii_isspace(line.front())) line.remove_prefix(1);
    while (!line.empty() && absl::ascii_isspace(line.back())) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kMinTokenBytes || line.size() > kMaxTokenBytes ||
        !std::ranges::all_of(line, [](char c) { return c > 0x20 && c <= 0x7e; })) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": a token must have ",
                                                     kMinTokenBytes, " to ", kMaxTokenBytes,
                                                     " printable ASCII characters"));
    }
    if (tokens.digests_.size() == kMaxTokens) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": there are more than ", kMaxTokens, " tokens"));
    }
    if (tokens.digests_.empty()) tokens.first_ = line;
    tokens.digests_.push_back(DigestOf(line));
  }
  if (tokens.digests_.empty()) return absl::InvalidArgumentError("has no token");
  return tokens;
}

bool Tokens::Contain(std::string_view token) const {
  if (token.size() > kMaxTokenBytes) return false;
  const Digest digest = DigestOf(token);
  unsigned found = 0;
  for (const Digest& known : digests_) {
    // No branch depends on the result.
    found |= static_cast<unsigned>(CRYPTO_memcmp(digest.data(), known.data(), known.size()) == 0);
  }
  return found != 0;
}

absl::StatusOr<Tokens> ReadTokens(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(kTokenFlag, path));
  return ParseText(kTokenFlag, path, text);
}

absl::StatusOr<std::unique_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           absl::Duration poll_interval,
                                                           std::string_view flag) {
  ASSIGN_OR_RETURN(std::string text, ReadText(flag, path));
  ASSIGN_OR_RETURN(Tokens tokens, ParseText(flag, path, text));
  // make_unique cannot call the private constructor.
  std::unique_ptr<TokenFile> result(new TokenFile(std::move(tokens)));
  result->file_ = std::make_unique<WatchedFile>(
      path, kMaxFileBytes, poll_interval, std::move(text),
      [f = result.get(), flag = std::string(flag)](const absl::StatusOr<std::string>& changed) {
        absl::StatusOr<Tokens> parsed = changed.ok() ? Tokens::Parse(*changed) : changed.status();
        if (!parsed.ok()) {
          Log(LogSeverity::kError, "new tokens are bad, the ones before stay",
              {{"flag", flag}, {"error", std::string(parsed.status().message())}});
          return;
        }
        Log(LogSeverity::kInfo, "new tokens", {{"flag", flag}});
        auto shared = std::make_shared<const Tokens>(*std::move(parsed));
        absl::MutexLock lock(&f->mutex_);
        f->tokens_ = std::move(shared);
      });
  return result;
}

absl::StatusOr<std::function<bool(std::string_view)>> OpenMetricsTokens(const std::string& path) {
  if (path.empty()) return nullptr;
  ASSIGN_OR_RETURN(std::shared_ptr<const TokenFile> file,
                   TokenFile::Open(path, absl::Seconds(1), "metrics_token_file"));
  return
      [file = std::move(file)](std::string_view token) { return file->tokens()->Contain(token); };
}

}  // namespace continuo::common
