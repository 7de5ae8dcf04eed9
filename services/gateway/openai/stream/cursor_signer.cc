// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor_signer.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <array>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "services/base/check.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr std::string_view kPurpose = "continuo stream cursor";
constexpr char kVersion = 1;
constexpr size_t kTagBytes = 16, kDigestBytes = 4;
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

// HMAC-SHA256 under one key, whose first half is computed once.
class CursorSigner::Mac {
 public:
  explicit Mac(const FleetSecret::Mac& key) {
    EVP_MAC* const hmac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
    CONTINUO_CHECK(hmac != nullptr);
    context_ = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);
    std::string digest = OSSL_DIGEST_NAME_SHA2_256;
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), digest.size()),
        OSSL_PARAM_construct_end()};
    CONTINUO_CHECK(EVP_MAC_init(context_, key.data(), key.size(), params) == 1);
  }
  Mac(const Mac&) = delete;
  Mac& operator=(const Mac&) = delete;
  ~Mac() { EVP_MAC_CTX_free(context_); }

  std::string Tag(std::string_view bytes) {
    std::array<unsigned char, 32> tag;
    size_t size = 0;
    CONTINUO_CHECK(EVP_MAC_init(context_, nullptr, 0, nullptr) == 1 &&
                   EVP_MAC_update(context_, reinterpret_cast<const unsigned char*>(bytes.data()),
                                  bytes.size()) == 1 &&
                   EVP_MAC_final(context_, tag.data(), &size, tag.size()) == 1);
    return {reinterpret_cast<const char*>(tag.data()), kTagBytes};
  }

 private:
  EVP_MAC_CTX* context_;
};

CursorSigner::CursorSigner(const FleetSecret& secret, std::string_view tenant,
                           std::string_view body)
    : tenant_(tenant),
      keys_(KeysOf(secret, tenant, body)),
      begin_(BeginOf(body)),
      mac_(std::make_unique<Mac>(keys_.front())) {}

CursorSigner::~CursorSigner() = default;

std::string CursorSigner::Sign(const Cursor& cursor) {
  std::string bytes = begin_;
  bytes.append(CursorBytes(cursor));
  bytes.append(mac_->Tag(bytes));
  return absl::WebSafeBase64Escape(bytes);
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
    is_ours |= CRYPTO_memcmp(Mac(key).Tag(payload).data(), tag.data(), kTagBytes) == 0;
  }
  // A version that is not known cannot be read, whoever signed it.
  if (!is_ours || !payload.starts_with(begin_)) return InvalidCursor();
  std::optional<Cursor> cursor = ReadCursorBytes(payload.substr(begin_.size()));
  if (!cursor.has_value()) return InvalidCursor();
  return *std::move(cursor);
}

}  // namespace continuo::gateway::openai
