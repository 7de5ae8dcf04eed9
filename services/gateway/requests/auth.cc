// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {
namespace {

constexpr char kDefaultTenant[] = "default";
constexpr std::string_view kHashPrefix = "sha256:";
constexpr size_t kMinKeyBytes = 16, kMaxKeyBytes = 512;
constexpr uintmax_t kMaxFileBytes = 16 << 20;

absl::StatusOr<std::string> ReadKeysFile(const std::string& path) {
  std::error_code error;
  // Reading a pipe would block.
  if (!std::filesystem::is_regular_file(path, error) || error) {
    return absl::InvalidArgumentError("is not a file that can be read");
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", size, " bytes, the limit is ", kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError("is not a file that can be read");
  }
  return text;
}

bool IsPrintable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c <= 0x7e; });
}

// Removes everything up to and including the first of `separators` from the front of `text`, and
// returns it without the separator.
std::string_view NextPart(std::string_view& text, std::string_view separators) {
  const size_t end = std::min(text.find_first_of(separators), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// The next word between spaces; "" at the end.
std::string_view NextWord(std::string_view& text) {
  constexpr std::string_view kSpaces = " \t\r";
  std::string_view word;
  while (word.empty() && !text.empty()) word = NextPart(text, kSpaces);
  return word;
}

// The text after "Bearer"; the scheme's case does not matter.
std::optional<std::string_view> BearerKey(std::string_view authorization) {
  const std::string_view scheme = NextWord(authorization);
  const std::string_view key = NextWord(authorization);
  if (!absl::EqualsIgnoreCase(std::string(scheme), "bearer") || key.empty()) return std::nullopt;
  if (!NextWord(authorization).empty()) return std::nullopt;
  return key;
}

}  // namespace

KeyRing::Digest KeyRing::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<KeyRing> KeyRing::Parse(std::string_view text) {
  KeyRing ring;
  std::vector<std::pair<Entry, int>> read;  // with the line
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = NextPart(text, "\n");
    ++number;
    const auto bad = [number](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", why));
    };
    std::string_view rest = line;
    const std::string_view tenant = NextWord(rest);
    std::string_view key = NextWord(rest);
    if (tenant.empty() || tenant.front() == '#') continue;
    if (key.empty() || !NextWord(rest).empty()) {
      return bad("must be a tenant and a key, with a space between them");
    }
    if (tenant.size() > 128 || !IsPrintable(tenant)) {
      return bad("a tenant must have 1 to 128 printable ASCII characters");
    }
    Entry entry = {.tenant = std::string(tenant)};
    if (key.starts_with(kHashPrefix)) {
      key.remove_prefix(kHashPrefix.size());
      if (key.size() != 2 * entry.digest.size() ||
          !std::ranges::all_of(key, [](char c) { return absl::ascii_isxdigit(c); })) {
        return bad("sha256: must be followed by 64 hexadecimal digits");
      }
      std::ranges::copy(absl::HexStringToBytes(std::string(key)), entry.digest.begin());
    } else {
      if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes || !IsPrintable(key)) {
        return bad(absl::StrCat("a key must have ", kMinKeyBytes, " to ", kMaxKeyBytes,
                                " printable ASCII characters"));
      }
      entry.digest = DigestOf(key);
    }
    read.emplace_back(std::move(entry), number);
  }
  std::ranges::sort(read, {}, [](const auto& r) { return std::tie(r.first.digest, r.second); });
  for (auto& [entry, line] : read) {
    const bool known = !ring.entries_.empty() && ring.entries_.back().digest == entry.digest;
    if (!known) {
      ring.entries_.push_back(std::move(entry));
    } else if (ring.entries_.back().tenant != entry.tenant) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line, ": the key is another tenant's already"));
    }
  }
  if (ring.entries_.empty()) return absl::InvalidArgumentError("has no key");
  return ring;
}

std::optional<std::string> KeyRing::TenantOf(std::string_view key) const {
  const Digest digest = DigestOf(key);
  size_t found = entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) {
    // All ones if they agree; no branch depends on it.
    const size_t agree =
        size_t{0} - static_cast<size_t>(CRYPTO_memcmp(digest.data(), entries_[i].digest.data(),
                                                      digest.size()) == 0);
    found = (agree & i) | (~agree & found);
  }
  if (found == entries_.size()) return std::nullopt;
  return entries_[found].tenant;
}

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::Open(AuthOptions options) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<Authenticator> result(new Authenticator(std::move(options)));
  Authenticator* const a = result.get();
  const std::string& path = a->options_.keys_file;
  if (path.empty()) return result;
  if (a->options_.trust_tenant_header) {
    return absl::InvalidArgumentError(
        "--trust_tenant_header and --api_keys_file exclude each other: with keys the tenant is the "
        "key's");
  }
  const auto bad = [&path](const absl::Status& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--api_keys_file: \"", path, "\": ", why.message()));
  };
  absl::StatusOr<std::string> text = ReadKeysFile(path);
  if (!text.ok()) return bad(text.status());
  absl::StatusOr<KeyRing> ring = KeyRing::Parse(*text);
  if (!ring.ok()) return bad(ring.status());
  {
    absl::MutexLock reload_lock(&a->reload_mutex_);
    a->seen_ = std::move(text);
    absl::MutexLock lock(&a->mutex_);
    a->keys_ = std::make_shared<const KeyRing>(*std::move(ring));
  }
  a->watcher_ = std::thread([a] {
    while (!a->stop_.WaitForNotificationWithTimeout(a->options_.poll_interval)) a->Reload();
  });
  return result;
}

Authenticator::~Authenticator() {
  stop_.Notify();
  if (watcher_.joinable()) watcher_.join();
}

absl::StatusOr<std::string> Authenticator::Authenticate(std::string_view authorization,
                                                        std::string_view tenant_header) const {
  std::shared_ptr<const KeyRing> keys;
  {
    absl::MutexLock lock(&mutex_);
    keys = keys_;
  }
  if (keys == nullptr) {
    if (!options_.trust_tenant_header || tenant_header.empty()) return kDefaultTenant;
    RETURN_IF_ERROR(protocol::ValidateId("x-tenant-id", tenant_header));
    return std::string(tenant_header);
  }
  const std::optional<std::string_view> key = BearerKey(authorization);
  if (!key.has_value()) {
    return absl::UnauthenticatedError("a key is needed: authorization: Bearer KEY");
  }
  if (key->size() <= kMaxKeyBytes) {
    if (std::optional<std::string> tenant = keys->TenantOf(*key)) return *std::move(tenant);
  }
  return absl::UnauthenticatedError("the key is not valid");
}

void Authenticator::Reload() {
  if (options_.keys_file.empty()) return;
  absl::MutexLock reload_lock(&reload_mutex_);
  absl::StatusOr<std::string> text = ReadKeysFile(options_.keys_file);
  // The whole text is compared, because times and sizes can stay the same.
  if (text == seen_) return;
  seen_ = text;
  absl::StatusOr<int> outcome = 0;
  absl::StatusOr<KeyRing> ring = text.ok() ? KeyRing::Parse(*text) : text.status();
  if (ring.ok()) {
    outcome = ring->num_keys();
    auto keys = std::make_shared<const KeyRing>(*std::move(ring));
    absl::MutexLock lock(&mutex_);
    keys_ = std::move(keys);
  } else {
    outcome = ring.status();
  }
  if (options_.on_change) options_.on_change(outcome);
}

}  // namespace continuo::gateway
