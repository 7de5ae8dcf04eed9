// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cmac.h"

#include <openssl/evp.h>

#include <cstring>

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

// By words, since every event of a stream does it several times.
void Xor(const Cmac::Tag& block, char* to) {
  std::array<uint64_t, Cmac::kBytes / sizeof(uint64_t)> a, b;
  std::memcpy(a.data(), block.data(), Cmac::kBytes);
  std::memcpy(b.data(), to, Cmac::kBytes);
  for (size_t i = 0; i < a.size(); ++i) a[i] ^= b[i];
  std::memcpy(to, a.data(), Cmac::kBytes);
}

}  // namespace

Cmac::Cmac(std::span<const uint8_t, 32> key) : cipher_(EVP_CIPHER_CTX_new()) {
  CONTINUO_CHECK(
      cipher_ != nullptr &&
      EVP_EncryptInit_ex(cipher_, EVP_aes_256_cbc(), nullptr, key.data(), chain_.data()) == 1 &&
      EVP_CIPHER_CTX_set_padding(cipher_, 0) == 1);
  padded_message_.assign(kBytes, '\0');
  Encrypt({});
  whole_ = Doubled(chain_);
  padded_ = Doubled(whole_);
}

Cmac::~Cmac() { EVP_CIPHER_CTX_free(cipher_); }

void Cmac::Encrypt(const Tag& from) {
  // The cipher goes on with its chain; taken away from the first block, it counts for nothing.
  Xor(chain_, padded_message_.data());
  Xor(from, padded_message_.data());
  encrypted_.resize(padded_message_.size());
  int size = 0;
  CONTINUO_CHECK(EVP_EncryptUpdate(cipher_, reinterpret_cast<unsigned char*>(encrypted_.data()),
                                   &size,
                                   reinterpret_cast<const unsigned char*>(padded_message_.data()),
                                   static_cast<int>(padded_message_.size())) == 1 &&
                 static_cast<size_t>(size) == encrypted_.size());
  std::memcpy(chain_.data(), encrypted_.data() + encrypted_.size() - kBytes, kBytes);
}

void Cmac::SetBegin(std::string_view blocks) {
  CONTINUO_CHECK(blocks.size() % kBytes == 0);
  begin_ = {};
  has_begin_ = !blocks.empty();
  if (!has_begin_) return;
  padded_message_ = blocks;
  Encrypt({});
  begin_ = chain_;
}

Cmac::Tag Cmac::Of(std::string_view rest) {
  CONTINUO_CHECK(!rest.empty() || !has_begin_);
  const bool is_whole = !rest.empty() && rest.size() % kBytes == 0;
  const size_t size = is_whole ? rest.size() : (rest.size() / kBytes + 1) * kBytes;
  padded_message_.resize(size);
  rest.copy(padded_message_.data(), rest.size());
  if (!is_whole) {
    char* const padding = padded_message_.data() + rest.size();
    std::memset(padding, 0, size - rest.size());
    *padding = static_cast<char>(0x80);
  }
  Xor(is_whole ? whole_ : padded_, padded_message_.data() + padded_message_.size() - kBytes);
  Encrypt(begin_);
  return chain_;
}

}  // namespace continuo::gateway::openai
