// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace continuo::text {

// Puts bytes together to whole characters. Bytes that can be no character become one U+FFFD per
// maximal subpart (Unicode 16, section 3.9: the longest beginning of a character, or else one
// byte). Not thread-safe; copyable.
class Utf8Assembler {
 public:
  // Appends to `text` the characters that `bytes` complete; keeps the beginning of one (at most 3
  // bytes) for later.
  void Push(std::string_view bytes, std::string* text);

  // The beginning of a character that is still kept becomes one U+FFFD.
  void Flush(std::string* text);

 private:
  char pending_[4] = {};
  uint8_t num_pending_ = 0;
  uint8_t num_missing_ = 0;  // bytes until the character is whole; 0: nothing is pending
  // What the next byte must lie in: narrower than [80, BF] after E0, ED, F0 and F4, so that
  // overlong forms, surrogates and what is beyond U+10FFFF end at once.
  uint8_t lower_ = 0x80, upper_ = 0xBF;
};

bool IsUtf8(std::string_view text);

}  // namespace continuo::text
