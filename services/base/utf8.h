// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one decoder of UTF-8: what checks text, repairs it or assembles it from pieces asks here
// which bytes make a character (Unicode 16, table 3-7). The functions are thread-safe.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace continuo {

// Length in bytes of the well-formed character at the beginning of `text`; 0 if there is none.
size_t Utf8CharacterLength(std::string_view text);

bool IsUtf8(std::string_view text);

// `text` with one U+FFFD for each byte that is part of no character. Text that comes from outside
// passes through here before it goes into a proto's string: protobuf rejects other bytes.
std::string ToValidUtf8(std::string_view text);

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
  // The next byte must lie in this range: it is narrower than [80, BF] after E0, ED, F0 and F4, so
  // that overlong forms, surrogates and code points beyond U+10FFFF end at once.
  uint8_t lower_ = 0x80, upper_ = 0xBF;
};

}  // namespace continuo
