// SPDX-License-Identifier: Apache-2.0
#include "services/base/utf8.h"

#include <cstring>

namespace continuo {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The first byte of a character of several bytes: how many bytes follow, and the range of the next
// one.
struct Lead {
  uint8_t num_following, lower, upper;  // num_following 0: no character begins with this byte
};

constexpr Lead LeadOf(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

size_t Utf8CharacterLength(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const Lead lead = LeadOf(byte(0));
  if (lead.num_following == 0 || text.size() <= lead.num_following) return 0;
  if (byte(1) < lead.lower || byte(1) > lead.upper) return 0;
  for (size_t i = 2; i <= lead.num_following; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return size_t{1} + lead.num_following;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    // Most text is ASCII: eight bytes at a time.
    uint64_t eight;
    if (text.size() >= sizeof(eight)) {
      std::memcpy(&eight, text.data(), sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        text.remove_prefix(sizeof(eight));
        continue;
      }
    }
    const size_t length = Utf8CharacterLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8CharacterLength(text);
    result += length == 0 ? kReplacement : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

void Utf8Assembler::Push(std::string_view bytes, std::string* text) {
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (num_missing_ > 0) {
      if (byte >= lower_ && byte <= upper_) {
        pending_[num_pending_++] = c;
        lower_ = 0x80;
        upper_ = 0xBF;
        if (--num_missing_ == 0) text->append(pending_, num_pending_);
        continue;
      }
      Flush(text);
    }
    if (byte < 0x80) {
      text->push_back(c);
    } else if (const Lead lead = LeadOf(byte); lead.num_following > 0) {
      pending_[0] = c;
      num_pending_ = 1;
      num_missing_ = lead.num_following;
      lower_ = lead.lower;
      upper_ = lead.upper;
    } else {
      text->append(kReplacement);
    }
  }
}

void Utf8Assembler::Flush(std::string* text) {
  if (num_missing_ > 0) text->append(kReplacement);
  num_missing_ = 0;
}

}  // namespace continuo
