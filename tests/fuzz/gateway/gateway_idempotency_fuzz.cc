// SPDX-License-Identifier: Apache-2.0
// Any bytes as Idempotency-Key are an error that quotes none of them, or an identity within the
// limits that every gateway with the secret derives alike, and that no other key and no other
// tenant has.
//
// The first eight bytes are the present, in seconds within some centuries.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "services/base/check.h"
#include "services/gateway/identity/idempotency.h"

namespace continuo::gateway {
namespace {

FleetSecret SecretOfByte(uint8_t byte) {
  return FleetSecret([byte] {
    FleetSecret::Key key;
    key.fill(byte);
    return std::vector<FleetSecret::Key>{key};
  });
}

bool IsSame(const CallIdentity& a, const CallIdentity& b) {
  return a.request_id == b.request_id && a.seed == b.seed && a.reference_time == b.reference_time;
}

void CheckIdentity(const CallIdentity& identity, absl::Time now) {
  CONTINUO_CHECK(identity.request_id.size() == 36 && identity.request_id.starts_with("req-"));
  CONTINUO_CHECK(std::ranges::all_of(identity.request_id.substr(4), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  }));
  CONTINUO_CHECK(identity.seed < uint64_t{1} << 53 && identity.takes_over);
  const absl::Time time = identity.reference_time;
  CONTINUO_CHECK(time == absl::FromUnixSeconds(absl::ToUnixSeconds(time)));
  CONTINUO_CHECK(absl::AbsDuration(time - now) <= absl::Hours(24 * 365));
  for (size_t prompt = 1; prompt < 4; ++prompt) {
    const uint64_t seed = SeedOfPrompt(identity, prompt);
    CONTINUO_CHECK(seed < uint64_t{1} << 53 && seed != SeedOfPrompt(identity, 0));
  }
}

void Run(absl::Time now, std::string_view key) {
  static const FleetSecret secret = SecretOfByte(1), same = SecretOfByte(1),
                           other = SecretOfByte(2);
  const auto identity = IdentityOfKey(secret, "t", key, now);
  if (!identity.ok()) {
    CONTINUO_CHECK(key.empty() || key.size() > kMaxIdempotencyKeyBytes);
    CONTINUO_CHECK(identity.status().message().size() < 100);
    return;
  }
  CheckIdentity(*identity, now);
  CONTINUO_CHECK(IsSame(*IdentityOfKey(same, "t", key, now), *identity));
  for (const auto& others :
       {IdentityOfKey(other, "t", key, now), IdentityOfKey(secret, "u", key, now),
        IdentityOfKey(secret, "t", key.size() > 1 ? key.substr(1) : "\x01\x02", now),
        // Where tenant and key meet does not matter.
        IdentityOfKey(secret, absl::StrCat("t", std::string(key.substr(0, 1))),
                      key.size() > 1 ? key.substr(1) : "\x01\x02", now)}) {
    CONTINUO_CHECK(others.ok() && others->request_id != identity->request_id);
  }
}

}  // namespace
}  // namespace continuo::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int64_t seconds = 0;
  if (size < sizeof(seconds)) return 0;
  std::memcpy(&seconds, data, sizeof(seconds));
  constexpr int64_t kMost = int64_t{10'000} * 365 * 24 * 3600;
  const absl::Time now = absl::FromUnixSeconds(seconds % kMost);
  continuo::gateway::Run(
      now, {reinterpret_cast<const char*>(data) + sizeof(seconds), size - sizeof(seconds)});
  return 0;
}
