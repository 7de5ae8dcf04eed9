// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor_signer.h"

#include <openssl/crypto.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kPurpose = "continuo stream cursor";
constexpr char kVersion = 2;
constexpr size_t kTagBytes = Cmac::kBytes, kDigestBytes = 4;
constexpr size_t kMaxTextBytes = 64 << 10;

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

const std::string& CursorSigner::Sign(const Cursor& cursor) {
  if (names_.empty() || !HaveSameName(cursor, named_)) {
    named_.request_id = cursor.request_id;
    named_.fingerprint = cursor.fingerprint;
    named_.seed = cursor.seed;
    named_.reference_time = cursor.reference_time;
    names_ = begin_ + NameBytes(cursor);
  }
  bytes_ = names_;
  AppendPlaceBytes(cursor, &bytes_);
  const Cmac::Tag tag = mac_.Of(bytes_);
  bytes_.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  absl::WebSafeBase64Escape(bytes_, &text_);
  return text_;
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
