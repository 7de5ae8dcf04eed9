// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace continuo::gateway::openai {

// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012), a message
// authentication code of 64 bits with a key of 128: for many short messages under one key.
// OpenSSL's own is set up anew for each message, which takes longer than the code itself. Values
// may be copied; one is not to be used by several threads while SetBegin runs.
class SipHash {
 public:
  static constexpr size_t kWordBytes = 8, kKeyBytes = 16;
  using Tag = std::array<uint8_t, 8>;

  explicit SipHash(std::span<const uint8_t, kKeyBytes> key);

  // Messages begin with these words from now on, which are hashed here once. The size is a
  // multiple of kWordBytes.
  void SetBegin(std::string_view words);
  // The tag of the message that consists of the begin and of `rest`.
  Tag Of(std::string_view rest) const;

 private:
  using State = std::array<uint64_t, 4>;

  State key_;  // no word was hashed yet
  State begin_;
  size_t num_begin_ = 0;  // bytes
};

}  // namespace continuo::gateway::openai
