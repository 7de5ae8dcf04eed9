// SPDX-License-Identifier: Apache-2.0
#pragma once

// An identity names a generation that a client may ask for again. It is a function of the client's
// key alone, so that gateways derive the same without a store (exactness: same-retry).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/identity/fleet_secret.h"

namespace continuo::gateway {

// The names of the header, as gRPC's metadata has it, and the longest key.
inline constexpr char kIdempotencyKey[] = "idempotency-key";
inline constexpr size_t kMaxIdempotencyKeyBytes = 255;

// A call and its retries have these in common.
struct CallIdentity {
  std::string request_id;
  uint64_t seed = 0;  // of the first prompt, where the request has none; below 2^53
  absl::Time reference_time;
  // The digest of the request: the same identity with another one is refused. Empty: not checked.
  std::string body;
  // A live generation of this identity ends, and this call goes on with it.
  bool takes_over = false;
  // The worker fingerprint of an earlier answer, where this gateway remembers one.
  std::string fingerprint;
  // Workers whose fingerprint begins so are preferred. Empty: all are alike.
  std::string preferred_fingerprint;
};

// The identity of all requests of a tenant with this key. The reference time is the one in the key,
// if that is a UUID of version 7, and else the begin of the day in UTC. INVALID_ARGUMENT if the key
// is empty or too long.
absl::StatusOr<CallIdentity> IdentityOfKey(const FleetSecret& secret, std::string_view tenant,
                                           std::string_view key, absl::Time now);

// True if that is the request_id of the tenant's requests with this key, under any of the keys that
// the secret has.
bool IsIdOfKey(const FleetSecret& secret, std::string_view tenant, std::string_view key,
               std::string_view request_id);

// The seed of a generation whose id was drawn.
uint64_t SeedOfId(const FleetSecret& secret, std::string_view request_id);

// The seed of prompt number `prompt` of a call.
uint64_t SeedOfPrompt(const CallIdentity& identity, size_t prompt);

}  // namespace continuo::gateway
