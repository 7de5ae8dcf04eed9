// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/idempotency.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

constexpr std::string_view kPurpose = "continuo idempotency key";
// The weight of a prompt's number in its seed: odd, so that seeds of a call differ (Steele et al.,
// SplitMix64).
constexpr uint64_t kGamma = 0x9E3779B97F4A7C15;
constexpr int kSeedShift = 64 - 53;  // a double holds each seed

uint64_t LittleEndian(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// The time in a UUID of version 7 (RFC 9562), to the second, unless it is far from the present.
std::optional<absl::Time> TimeOfUuid(std::string_view key, absl::Time now) {
  constexpr size_t kSize = 36;
  if (key.size() != kSize || key[14] != '7') return std::nullopt;
  uint64_t milliseconds = 0;
  for (size_t i = 0; i < kSize; ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (is_dash ? key[i] != '-' : !absl::ascii_isxdigit(static_cast<unsigned char>(key[i]))) {
      return std::nullopt;
    }
    if (is_dash || i > 12) continue;
    const char c = absl::ascii_tolower(static_cast<unsigned char>(key[i]));
    milliseconds = 16 * milliseconds + static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  const absl::Time time = absl::FromUnixSeconds(static_cast<int64_t>(milliseconds / 1000));
  constexpr absl::Duration kMost = absl::Hours(24 * 365);
  if (time < now - kMost || time > now + kMost) return std::nullopt;
  return time;
}

std::string IdOf(const FleetSecret::Mac& mac) {
  return absl::StrCat("req-", absl::BytesToHexString(absl::string_view(
                                  reinterpret_cast<const char*>(mac.data()), 16)));
}

}  // namespace

absl::StatusOr<CallIdentity> IdentityOfKey(const FleetSecret& secret, std::string_view tenant,
                                           std::string_view key, absl::Time now) {
  if (key.empty() || key.size() > kMaxIdempotencyKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Idempotency-Key has ", key.size(), " bytes; it must have 1 to ", kMaxIdempotencyKeyBytes));
  }
  const std::string_view parts[] = {tenant, key};
  const FleetSecret::Mac mac = secret.Make(kPurpose, parts);
  CallIdentity identity;
  identity.request_id = IdOf(mac);
  identity.seed = LittleEndian(&mac[16]) >> kSeedShift;
  const std::optional<absl::Time> own = TimeOfUuid(key, now);
  identity.reference_time = own.value_or(
      absl::FromCivil(absl::ToCivilDay(now, absl::UTCTimeZone()), absl::UTCTimeZone()));
  identity.takes_over = true;
  return identity;
}

bool IsIdOfKey(const FleetSecret& secret, std::string_view tenant, std::string_view key,
               std::string_view request_id) {
  const std::string_view parts[] = {tenant, key};
  return std::ranges::any_of(secret.MakeEach(kPurpose, parts),
                             [&](const FleetSecret::Mac& mac) { return IdOf(mac) == request_id; });
}

uint64_t SeedOfId(const FleetSecret& secret, std::string_view request_id) {
  const std::string_view parts[] = {request_id};
  return LittleEndian(secret.Make("continuo seed", parts).data()) >> kSeedShift;
}

uint64_t SeedOfPrompt(const CallIdentity& identity, size_t prompt) {
  return ((identity.seed << kSeedShift) + prompt * kGamma) >> kSeedShift;
}

}  // namespace continuo::gateway
