// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/identity/fleet_secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "services/base/check.h"

namespace continuo::gateway {
namespace {

void AppendPart(std::string_view part, std::string* message) {
  for (int shift = 0; shift < 64; shift += 8) {
    message->push_back(static_cast<char>(static_cast<uint64_t>(part.size()) >> shift));
  }
  message->append(part);
}

std::string Joined(std::string_view purpose, std::span<const std::string_view> parts) {
  std::string message;
  AppendPart(purpose, &message);
  for (const std::string_view part : parts) AppendPart(part, &message);
  return message;
}

FleetSecret::Mac MacOf(const FleetSecret::Key& key, const std::string& message) {
  FleetSecret::Mac mac;
  CONTINUO_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                      mac.data(), nullptr) != nullptr);
  return mac;
}

}  // namespace

FleetSecret FleetSecret::Random() {
  Key key;
  CONTINUO_CHECK(RAND_bytes(key.data(), static_cast<int>(key.size())) == 1);
  return FleetSecret([key] { return std::vector<Key>{key}; });
}

FleetSecret::Mac FleetSecret::Make(std::string_view purpose,
                                   std::span<const std::string_view> parts) const {
  return MacOf(keys_().front(), Joined(purpose, parts));
}

std::vector<FleetSecret::Mac> FleetSecret::MakeEach(std::string_view purpose,
                                                    std::span<const std::string_view> parts) const {
  const std::string message = Joined(purpose, parts);
  std::vector<Mac> macs;
  for (const Key& key : keys_()) macs.push_back(MacOf(key, message));
  return macs;
}

std::string DigestOf(std::span<const std::string_view> parts) {
  const std::string message = Joined("", parts);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest.data());
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace continuo::gateway
