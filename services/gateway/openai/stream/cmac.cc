// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cmac.h"

#include <openssl/evp.h>

#include <algorithm>

#include "services/base/check.h"

namespace continuo::gateway::openai {
namespace {

// Twice the block in the field of SP 800-38B.
Cmac::Tag Doubled(const Cmac::Tag& block) {
  constexpr uint8_t kPolynomial = 0x87;
  Cmac::Tag doubled;
  for (size_t i = 0; i < block.size(); ++i) {
    const uint8_t carry = i + 1 < block.size() ? block[i + 1] >> 7 : 0;
    doubled[i] = static_cast<uint8_t>(block[i] << 1 | carry);
  }
  // No branch depends on the key.
  doubled.back() ^= static_cast<uint8_t>(-(block.front() >> 7) & kPolynomial);
  return doubled;
}

void Xor(const Cmac::Tag& block, char* to) {
  for (size_t i = 0; i < block.size(); ++i) to[i] = static_cast<char>(to[i] ^ block[i]);
}

}  // namespace

Cmac::Cmac(std::span<const uint8_t, 32> key) : cipher_(EVP_CIPHER_CTX_new()) {
  CONTINUO_CHECK(
      cipher_ != nullptr &&
      EVP_EncryptInit_ex(cipher_, EVP_aes_256_cbc(), nullptr, key.data(), chain_.data()) == 1 &&
      EVP_CIPHER_CTX_set_padding(cipher_, 0) == 1);
  padded_message_.assign(kBytes, '\0');
  Encrypt();
  whole_ = Doubled(chain_);
  padded_ = Doubled(whole_);
}

Cmac::~Cmac() { EVP_CIPHER_CTX_free(cipher_); }

void Cmac::Encrypt() {
  // The cipher goes on with its chain; taken away from the first block, it counts for nothing.
  Xor(chain_, padded_message_.data());
  encrypted_.resize(padded_message_.size());
  int size = 0;
  CONTINUO_CHECK(EVP_EncryptUpdate(cipher_, reinterpret_cast<unsigned char*>(encrypted_.data()),
                                   &size,
                                   reinterpret_cast<const unsigned char*>(padded_message_.data()),
                                   static_cast<int>(padded_message_.size())) == 1 &&
                 static_cast<size_t>(size) == encrypted_.size());
  std::copy_n(encrypted_.end() - kBytes, kBytes, chain_.begin());
}

Cmac::Tag Cmac::Of(std::string_view message) {
  padded_message_ = message;
  const bool is_whole = !message.empty() && message.size() % kBytes == 0;
  if (!is_whole) {
    padded_message_.push_back(static_cast<char>(0x80));
    padded_message_.resize((padded_message_.size() + kBytes - 1) / kBytes * kBytes);
  }
  Xor(is_whole ? whole_ : padded_, padded_message_.data() + padded_message_.size() - kBytes);
  Encrypt();
  return chain_;
}

}  // namespace continuo::gateway::openai
