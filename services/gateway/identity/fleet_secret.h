// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace continuo::gateway {

// The secret that the gateways of a fleet share, with which they derive what has to be the same at
// each of them. Thread-safe.
class FleetSecret {
 public:
  using Key = std::array<uint8_t, 32>;
  using Mac = std::array<uint8_t, 32>;

  // `keys` returns at least one key, each time anew, since keys may change. What the
  // first one makes, the others verify, so that they can be replaced one after the other.
  explicit FleetSecret(std::function<std::vector<Key>()> keys) : keys_(std::move(keys)) {}
  // A secret that no other process has.
  static FleetSecret Random();

  // HMAC-SHA256 of the parts; each counts with its length. `purpose` keeps the values of one use
  // apart from those of another.
  Mac Make(std::string_view purpose, std::span<const std::string_view> parts) const;
  // The same under each key.
  std::vector<Mac> MakeEach(std::string_view purpose,
                            std::span<const std::string_view> parts) const;

 private:
  std::function<std::vector<Key>()> keys_;
};

// The SHA-256 of the parts, each of which counts with its length, as 64 hexadecimal digits.
std::string DigestOf(std::span<const std::string_view> parts);

}  // namespace continuo::gateway
