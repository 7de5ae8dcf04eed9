// SPDX-License-Identifier: Apache-2.0
#pragma once

// The keys of clients, and what each of them allows.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// Limits of one key at one gateway; with three gateways it has three times as much. 0 is no limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;  // of prompts and answers
  int64_t concurrent_requests = 0;
  friend bool operator==(const KeyLimits&, const KeyLimits&) = default;
};

// A grant says what a key allows. It is immutable.
struct KeyGrant {
  using Digest = std::array<uint8_t, 32>;

  std::string tenant;
  Digest digest;                                // the key's SHA-256
  absl::Time expires = absl::InfiniteFuture();  // The key is valid before it.
  KeyLimits limits;
  std::vector<std::string> models;  // empty: all
  bool is_admin = false;            // may load and unload adapters

  bool MayUse(std::string_view model) const;
  // The first 8 hexadecimal digits of the digest: tells keys of a tenant apart in logs.
  std::string id() const;
};

// The keys of one version of the file, as SHA-256 digests. Immutable.
class KeyRing {
 public:
  // Each line is `TENANT KEY [NAME=VALUE…]` or `TENANT sha256:HEX [NAME=VALUE…]`, where HEX is the
  // key's SHA-256 in 64 digits; empty lines and lines that begin with # are skipped. A tenant has 1
  // to 128 printable ASCII characters, a key 16 to 512, all without spaces. Options, each at most
  // once:
  //
  //   expires=2027-01-31            or expires=2027-01-31T12:00:00Z; a date is its begin in UTC
  //   requests_per_minute=60        numbers are from 1 to 10^12
  //   tokens_per_minute=100000
  //   concurrent_requests=8
  //   models=NAME,NAME              up to 64
  //   admin=true                    may load and unload adapters
  //
  // A tenant may have several keys, a key only one tenant and one set of options. INVALID_ARGUMENT
  // names the line, never its content.
  static absl::StatusOr<KeyRing> Parse(std::string_view text);

  // Returns what a key allows, expired or not; null for one that is unknown. It takes the same
  // time whether and whichever entry agrees: every digest is compared, each in constant time.
  std::shared_ptr<const KeyGrant> Find(std::string_view key) const;

  int num_keys() const { return static_cast<int>(entries_.size()); }

 private:
  std::vector<std::shared_ptr<const KeyGrant>> entries_;
};

// The length of the longest key.
inline constexpr size_t kMaxKeyBytes = 512;

}  // namespace continuo::gateway
