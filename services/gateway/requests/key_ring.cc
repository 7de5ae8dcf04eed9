// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/key_ring.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/limits.h"

namespace continuo::gateway {
namespace {

constexpr std::string_view kHashPrefix = "sha256:";
constexpr size_t kMinKeyBytes = 16, kMaxModels = 64;
constexpr int64_t kMaxLimit = 1'000'000'000'000;

constexpr char kShape[] =
    "must be a tenant and a key, with a space between them, and options NAME=VALUE after them";

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

KeyGrant::Digest DigestOf(std::string_view key) {
  KeyGrant::Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

absl::StatusOr<KeyGrant::Digest> ParseKey(std::string_view key) {
  if (!key.starts_with(kHashPrefix)) {
    if (key.size() >= kMinKeyBytes && key.size() <= kMaxKeyBytes && IsPrintable(key)) {
      return DigestOf(key);
    }
    return absl::InvalidArgumentError(absl::StrCat("a key must have ", kMinKeyBytes, " to ",
                                                   kMaxKeyBytes, " printable ASCII characters"));
  }
  key.remove_prefix(kHashPrefix.size());
  KeyGrant::Digest digest;
  if (key.size() != 2 * digest.size() ||
      !std::ranges::all_of(key, [](char c) { return absl::ascii_isxdigit(c); })) {
    return absl::InvalidArgumentError("sha256: must be followed by 64 hexadecimal digits");
  }
  std::ranges::copy(absl::HexStringToBytes(std::string(key)), digest.begin());
  return digest;
}

// Returns whether `text` has the shape, in which 9 stands for a digit and everything else for
// itself.
bool HasShape(std::string_view text, std::string_view shape) {
  return std::ranges::equal(
      text, shape, [](char c, char s) { return s == '9' ? absl::ascii_isdigit(c) : c == s; });
}

absl::Status ParseExpires(std::string_view value, KeyGrant* grant) {
  // absl's parser alone takes far more than these two.
  const bool is_date = HasShape(value, "9999-99-99");
  const bool is_time = HasShape(value, "9999-99-99T99:99:99Z");
  absl::Time time;
  std::string ignored;
  if ((!is_date && !is_time) || !absl::ParseTime(is_date ? "%Y-%m-%d" : "%Y-%m-%dT%H:%M:%SZ",
                                                 std::string(value), &time, &ignored)) {
    return absl::InvalidArgumentError(
        "expires= must be followed by a date or a time in UTC, such as 2027-01-31 or "
        "2027-01-31T12:00:00Z");
  }
  grant->expires = time;
  return absl::OkStatus();
}

absl::Status ParseModels(std::string_view value, KeyGrant* grant) {
  for (bool is_last = false; !is_last;) {
    is_last = value.find(',') == std::string_view::npos;
    const std::string_view model = NextPart(value, ",");
    if (model.empty() || model.size() > protocol::kMaxModelNameBytes || !IsPrintable(model) ||
        grant->models.size() == kMaxModels) {
      return absl::InvalidArgumentError(
          absl::StrCat("models= must be followed by up to ", kMaxModels,
                       " names with commas between them, each of up to ",
                       protocol::kMaxModelNameBytes, " printable ASCII characters"));
    }
    grant->models.emplace_back(model);
  }
  return absl::OkStatus();
}

absl::Status ParseLimit(const char* name, std::string_view value, int64_t* limit) {
  if (value.empty() || value.size() > 13 ||
      !std::ranges::all_of(value, [](char c) { return absl::ascii_isdigit(c); }) ||
      !absl::SimpleAtoi(absl::string_view(value.data(), value.size()), limit) || *limit < 1 ||
      *limit > kMaxLimit) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "= must be followed by an integer from 1 to ", kMaxLimit));
  }
  return absl::OkStatus();
}

constexpr struct {
  const char* name;
  int64_t KeyLimits::*limit;
} kLimits[] = {{"requests_per_minute", &KeyLimits::requests_per_minute},
               {"tokens_per_minute", &KeyLimits::tokens_per_minute},
               {"concurrent_requests", &KeyLimits::concurrent_requests}};

// Parses one NAME=VALUE. `seen` has the names of those before.
absl::Status ParseOption(std::string_view word, std::vector<std::string_view>& seen,
                         KeyGrant* grant) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return absl::InvalidArgumentError(kShape);
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  const bool is_again = std::ranges::find(seen, name) != seen.end();
  seen.push_back(name);
  absl::Status status = absl::InvalidArgumentError(
      "an option must be expires, requests_per_minute, tokens_per_minute, concurrent_requests, "
      "models or admin");
  if (name == "admin") {
    grant->is_admin = value == "true";
    status = grant->is_admin ? absl::OkStatus()
                             : absl::InvalidArgumentError("admin= must be followed by true");
  }
  if (name == "expires") status = ParseExpires(value, grant);
  if (name == "models") status = is_again ? absl::OkStatus() : ParseModels(value, grant);
  for (const auto& [limit_name, limit] : kLimits) {
    if (name == limit_name) status = ParseLimit(limit_name, value, &(grant->limits.*limit));
  }
  if (status.ok() && is_again) return absl::InvalidArgumentError("an option is given twice");
  return status;
}

// Parses a line that is neither empty nor a comment.
absl::StatusOr<KeyGrant> ParseLine(std::string_view line) {
  const std::string_view tenant = NextWord(line);
  const std::string_view key = NextWord(line);
  if (key.empty()) return absl::InvalidArgumentError(kShape);
  KeyGrant grant;
  std::vector<std::string_view> seen;
  for (std::string_view word = NextWord(line); !word.empty(); word = NextWord(line)) {
    RETURN_IF_ERROR(ParseOption(word, seen, &grant));
  }
  if (tenant.size() > 128 || !IsPrintable(tenant)) {
    return absl::InvalidArgumentError("a tenant must have 1 to 128 printable ASCII characters");
  }
  grant.tenant = tenant;
  ASSIGN_OR_RETURN(grant.digest, ParseKey(key));
  return grant;
}

}  // namespace

bool KeyGrant::MayUse(std::string_view model) const {
  return models.empty() || std::ranges::find(models, model) != models.end();
}

std::string KeyGrant::id() const {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), 4));
}

absl::StatusOr<KeyRing> KeyRing::Parse(std::string_view text) {
  std::vector<std::pair<KeyGrant, int>> read;  // with the line
  for (int number = 1; !text.empty(); ++number) {
    const std::string_view line = NextPart(text, "\n");
    std::string_view rest = line;
    const std::string_view first = NextWord(rest);
    if (first.empty() || first.front() == '#') continue;
    absl::StatusOr<KeyGrant> grant = ParseLine(line);
    if (!grant.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", std::string(grant.status().message())));
    }
    read.emplace_back(*std::move(grant), number);
  }
  std::ranges::sort(read, {}, [](const auto& r) { return std::tie(r.first.digest, r.second); });
  KeyRing ring;
  for (auto& [grant, line] : read) {
    if (ring.entries_.empty() || ring.entries_.back()->digest != grant.digest) {
      ring.entries_.push_back(std::make_shared<const KeyGrant>(std::move(grant)));
      continue;
    }
    const KeyGrant& known = *ring.entries_.back();
    if (known.tenant != grant.tenant) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line, ": the key is another tenant's already"));
    }
    if (known.expires != grant.expires || known.limits != grant.limits ||
        known.models != grant.models || known.is_admin != grant.is_admin) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line, ": the key stands above with other options"));
    }
  }
  if (ring.entries_.empty()) return absl::InvalidArgumentError("has no key");
  return ring;
}

std::shared_ptr<const KeyGrant> KeyRing::Find(std::string_view key) const {
  const KeyGrant::Digest digest = DigestOf(key);
  size_t found = entries_.size();
  for (size_t i = 0; i < entries_.size(); ++i) {
    // All ones if they agree; no branch depends on it.
    const size_t agree =
        size_t{0} - static_cast<size_t>(CRYPTO_memcmp(digest.data(), entries_[i]->digest.data(),
                                                      digest.size()) == 0);
    found = (agree & i) | (~agree & found);
  }
  return found == entries_.size() ? nullptr : entries_[found];
}

}  // namespace continuo::gateway
