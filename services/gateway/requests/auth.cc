// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/auth.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway {
namespace {

constexpr char kDefaultTenant[] = "default";
constexpr uint64_t kMaxFileBytes = 16 << 20;

// Removes the next word between spaces from the front of `text`; "" at the end.
std::string_view NextPiece(std::string_view& text) {
  constexpr std::string_view kSpaces = " \t\r";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
  text.remove_prefix(word.size());
  return word;
}

// The text after "Bearer"; the scheme's case does not matter.
std::optional<std::string_view> BearerKey(std::string_view authorization) {
  const std::string_view scheme = NextPiece(authorization);
  const std::string_view key = NextPiece(authorization);
  if (!absl::EqualsIgnoreCase(std::string(scheme), "bearer") || key.empty()) return std::nullopt;
  if (!NextPiece(authorization).empty()) return std::nullopt;
  return key;
}

}  // namespace

absl::Status CheckAdapterUpdate(const Caller& caller, std::string_view adapter) {
  if (caller.key == nullptr) return absl::OkStatus();
  if (!caller.key->is_admin) {
    return absl::PermissionDeniedError("the key may not update adapters: it has no admin=true");
  }
  if (caller.key->MayUse(adapter)) return absl::OkStatus();
  return protocol::WithReason(
      absl::PermissionDeniedError("the key is not for a model of this name"),
      protocol::kReasonModelNotAllowed);
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
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) return bad(text.status());
  absl::StatusOr<KeyRing> ring = KeyRing::Parse(*text);
  if (!ring.ok()) return bad(ring.status());
  {
    absl::MutexLock lock(&a->mutex_);
    a->keys_ = std::make_shared<const KeyRing>(*std::move(ring));
  }
  a->file_ = std::make_unique<WatchedFile>(
      path, kMaxFileBytes, a->options_.poll_interval, *std::move(text),
      [a](const absl::StatusOr<std::string>& changed) { a->OnFile(changed); });
  return result;
}

absl::StatusOr<Caller> Authenticator::Authenticate(std::string_view authorization,
                                                   std::string_view tenant_header) const {
  std::shared_ptr<const KeyRing> keys;
  {
    absl::MutexLock lock(&mutex_);
    keys = keys_;
  }
  if (keys == nullptr) {
    if (!options_.trust_tenant_header || tenant_header.empty()) {
      return Caller{.tenant = kDefaultTenant};
    }
    RETURN_IF_ERROR(protocol::ValidateId("x-tenant-id", tenant_header));
    return Caller{.tenant = std::string(tenant_header)};
  }
  const std::optional<std::string_view> key = BearerKey(authorization);
  if (!key.has_value()) {
    return absl::UnauthenticatedError("a key is needed: authorization: Bearer KEY");
  }
  if (key->size() > kMaxKeyBytes) return absl::UnauthenticatedError("the key is not valid");
  std::shared_ptr<const KeyGrant> grant = keys->Find(*key);
  if (grant == nullptr) return absl::UnauthenticatedError("the key is not valid");
  const Clock& clock = options_.clock != nullptr ? *options_.clock : system_clock_;
  if (clock.Now() >= grant->expires) {
    return absl::UnauthenticatedError(
        absl::StrCat("the key has expired: ",
                     absl::FormatTime(absl::RFC3339_sec, grant->expires, absl::UTCTimeZone())));
  }
  return Caller{.tenant = grant->tenant, .key = std::move(grant)};
}

void Authenticator::OnFile(const absl::StatusOr<std::string>& text) {
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

void Authenticator::Reload() {
  if (file_ != nullptr) file_->Look();
}

}  // namespace continuo::gateway
