// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor_signer.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "services/base/check.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kPurpose = "continuo stream cursor";
constexpr char kVersion = 3;
// A tag of 64 bits. See 0216-http-streams.
constexpr size_t kTagBytes = 8, kDigestBytes = 2;
constexpr size_t kMaxTextBytes = 64 << 10;

// Three bytes are four characters of base64.
constexpr size_t kGroupBytes = 3;
constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// Appends what absl::WebSafeBase64Escape would write, without a text of its own on the way.
void AppendBase64(std::string_view bytes, std::string* text) {
  constexpr int kDigitBits = 6;
  char digits[4];
  while (!bytes.empty()) {
    const size_t size = std::min(bytes.size(), kGroupBytes);
    uint32_t group = 0;
    for (size_t i = 0; i < kGroupBytes; ++i) {
      group = group << 8 | (i < size ? static_cast<uint8_t>(bytes[i]) : 0);
    }
    for (int i = 0; i < 4; ++i) digits[i] = kBase64[group >> (3 - i) * kDigitBits & 63];
    text->append(digits, size + 1);
    bytes.remove_prefix(size);
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

}  // namespace

CursorSigner::CursorSigner(const FleetSecret& secret, std::string_view tenant,
                           std::string_view body)
    : tenant_(tenant),
      keys_(KeysOf(secret, tenant, body)),
      begin_(BeginOf(body)),
      mac_(keys_.front()) {}

void CursorSigner::SetGeneration(const Cursor& cursor) {
  bytes_ = begin_ + NameBytes(cursor);
  num_name_ = bytes_.size();
  const std::string_view name = bytes_;
  num_begin_ = num_name_ / Cmac::kBytes * Cmac::kBytes;
  mac_.SetBegin(name.substr(0, num_begin_));
  num_encoded_ = num_name_ / kGroupBytes * kGroupBytes;
  name_text_.clear();
  AppendBase64(name.substr(0, num_encoded_), &name_text_);
}

void CursorSigner::Sign(const Cursor& cursor, std::string* text) {
  CONTINUO_CHECK(num_name_ > 0);
  bytes_.resize(num_name_);
  AppendPlaceBytes(cursor, &bytes_);
  const Cmac::Tag tag = mac_.Of(std::string_view(bytes_).substr(num_begin_));
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
  bool is_ours = false;
  for (const FleetSecret::Mac& key : keys_) {
    is_ours |= CRYPTO_memcmp(Cmac(key).Of(payload).data(), tag.data(), kTagBytes) == 0;
  }
  // A version that is not known cannot be read, whoever signed it.
  if (!is_ours || !payload.starts_with(begin_)) return InvalidCursor();
  std::optional<Cursor> cursor = ReadCursorBytes(payload.substr(begin_.size()));
  if (!cursor.has_value()) return InvalidCursor();
  return *std::move(cursor);
}

}  // namespace continuo::gateway::openai
