// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

typedef struct evp_cipher_ctx_st EVP_CIPHER_CTX;

namespace continuo::gateway::openai {

// AES-CMAC with a key of 256 bits (NIST SP 800-38B), for many short messages under one key:
// OpenSSL's own sets its cipher up anew for each message, which takes longer than the cipher
// itself. Not thread-safe.
class Cmac {
 public:
  static constexpr size_t kBytes = 16;
  using Tag = std::array<uint8_t, kBytes>;

  explicit Cmac(std::span<const uint8_t, 32> key);
  Cmac(const Cmac&) = delete;
  Cmac& operator=(const Cmac&) = delete;
  ~Cmac();

  // Messages begin with these blocks from now on, whose part of the chain is computed here once.
  // The size is a multiple of kBytes.
  void SetBegin(std::string_view blocks);
  // The tag of the message that consists of the begin and of `rest`, which is not empty unless the
  // begin is.
  Tag Of(std::string_view rest);

 private:
  // Encrypts the padded message as one chain from the block `from`, and keeps its last block.
  void Encrypt(const Tag& from);

  EVP_CIPHER_CTX* const cipher_;
  Tag chain_ = {};  // the last block of the chain so far
  Tag begin_ = {};  // the last block of the chain of what messages begin with
  bool has_begin_ = false;
  Tag whole_, padded_;  // subkeys for messages of whole blocks, and for others
  std::string padded_message_, encrypted_;
};

}  // namespace continuo::gateway::openai
