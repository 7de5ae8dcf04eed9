// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor_signer.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "services/base/check.h"
#include "services/gateway/identity/idempotency.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kPurpose = "continuo stream cursor";
constexpr char kVersion = 5;
// A tag of 64 bits. See 0216-http-streams.
constexpr size_t kTagBytes = sizeof(SipHash::Tag), kDigestBytes = 2;
constexpr size_t kMaxTextBytes = 64 << 10;

// Three bytes are four characters of base64.
constexpr size_t kGroupBytes = 3;
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// Writes the digits of a group, whose first byte is the highest of three.
void WriteGroup(uint32_t group, char* to) {
  to[0] = kBase64[group >> 18];
  to[1] = kBase64[group >> 12 & 63];
  to[2] = kBase64[group >> 6 & 63];
  to[3] = kBase64[group & 63];
}

// Appends what absl::WebSafeBase64Escape would write, without a text of its own on the way.
void AppendBase64(std::string_view bytes, std::string* text) {
  constexpr size_t kGroupsAtOnce = 16;
  char digits[4 * kGroupsAtOnce];
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, kGroupBytes * kGroupsAtOnce);
    const auto* from = reinterpret_cast<const uint8_t*>(part.data());
    char* to = digits;
    size_t left = part.size();
    for (; left >= kGroupBytes; left -= kGroupBytes, from += kGroupBytes, to += 4) {
      WriteGroup(uint32_t{from[0]} << 16 | uint32_t{from[1]} << 8 | from[2], to);
    }
    // A byte makes two digits, and two bytes three.
    if (left > 0) {
      WriteGroup(uint32_t{from[0]} << 16 | (left > 1 ? uint32_t{from[1]} << 8 : 0), to);
      to += left + 1;
    }
    text->append(digits, static_cast<size_t>(to - digits));
    bytes.remove_prefix(part.size());
  }
}

absl::Status InvalidCursor() {
  return protocol::WithReason(
      absl::InvalidArgumentError("Last-Event-ID is no id of an event that this fleet sent to this "
                                 "client, or its secret has changed since"),
      protocol::kReasonInvalidCursor);
}

// The version and the begin of the digest, which tells requests apart before the signature is
// computed.
std::string BeginOf(std::string_view digest) {
  const std::string begin =
      absl::HexStringToBytes(absl::string_view(digest.data(), 2 * kDigestBytes));
  return std::string(1, kVersion) + begin;
}

std::vector<FleetSecret::Mac> KeysOf(const FleetSecret& secret, std::string_view tenant,
                                     std::string_view body) {
  const std::string_view parts[] = {tenant, body};
  return secret.MakeEach(kPurpose, parts);
}

SipHash SipHashOf(const FleetSecret::Mac& key) {
  return SipHash(std::span(key).first<SipHash::kKeyBytes>());
}

uint64_t SeedUnder(const FleetSecret::Mac& key, std::string_view request_id) {
  return SeedOfId(FleetSecret([&key] { return std::vector{key}; }), request_id);
}

}  // namespace

CursorSigner::CursorSigner(const FleetSecret& secret, std::string_view tenant,
                           std::string_view body)
    : tenant_(tenant),
      keys_(KeysOf(secret, tenant, body)),
      begin_(BeginOf(body)),
      mac_(SipHashOf(keys_.front())) {}

uint64_t CursorSigner::SeedOf(std::string_view request_id) const {
  return SeedUnder(keys_.front(), request_id);
}

void CursorSigner::SetGeneration(const Cursor& cursor) {
  bytes_ = begin_ + NameBytes(cursor);
  num_name_ = bytes_.size();
  const std::string_view name = bytes_;
  num_begin_ = num_name_ / SipHash::kWordBytes * SipHash::kWordBytes;
  mac_.SetBegin(name.substr(0, num_begin_));
  num_encoded_ = num_name_ / kGroupBytes * kGroupBytes;
  name_text_.clear();
  AppendBase64(name.substr(0, num_encoded_), &name_text_);
}

void CursorSigner::Sign(const Cursor& cursor, std::string* text) {
  CONTINUO_CHECK(num_name_ > 0);
  bytes_.resize(num_name_);
  AppendPlaceBytes(cursor, &bytes_);
  const SipHash::Tag tag = mac_.Of(std::string_view(bytes_).substr(num_begin_));
  bytes_.append(reinterpret_cast<const char*>(tag.data()), kTagBytes);
  text->append(name_text_);
  AppendBase64(std::string_view(bytes_).substr(num_encoded_), text);
}

absl::StatusOr<Cursor> CursorSigner::Read(std::string_view text) const {
  std::string bytes;
  if (text.size() > kMaxTextBytes ||
      !absl::WebSafeBase64Unescape(absl::string_view(text.data(), text.size()), &bytes) ||
      bytes.size() < begin_.size() + kTagBytes || absl::WebSafeBase64Escape(bytes) != text) {
    return InvalidCursor();
  }
  const std::string_view all = bytes;
  const std::string_view payload = all.substr(0, all.size() - kTagBytes);
  const std::string_view tag = all.substr(payload.size());
  if (payload[0] == kVersion && !payload.starts_with(begin_)) {
    return protocol::WithReason(
        absl::AbortedError("Last-Event-ID is of another request; a stream goes on with the same "
                           "path and body"),
        protocol::kReasonOtherRequest);
  }
  const auto key = std::ranges::find_if(keys_, [&](const FleetSecret::Mac& key) {
    return CRYPTO_memcmp(SipHashOf(key).Of(payload).data(), tag.data(), kTagBytes) == 0;
  });
  // A version that is not known cannot be read, whoever signed it.
  if (key == keys_.end() || !payload.starts_with(begin_)) return InvalidCursor();
  std::optional<Cursor> cursor = ReadCursorBytes(payload.substr(begin_.size()));
  if (!cursor.has_value()) return InvalidCursor();
  if (!cursor->seed.has_value() && key != keys_.begin()) {
    cursor->seed = SeedUnder(*key, cursor->request_id);
  }
  return *std::move(cursor);
}

}  // namespace continuo::gateway::openai
