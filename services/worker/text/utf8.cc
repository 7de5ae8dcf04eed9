// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/utf8.h"

namespace continuo::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A byte that begins a character of several bytes: how many follow, and where the next one lies.
struct Lead {
  uint8_t num_following, lower, upper;  // num_following 0: no character begins so
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

void Utf8Assembler::Push(std::string_view bytes, std::string* text) {
  for (const char c : bytes) {
    const uint8_t byte = static_cast<uint8_t>(c);
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

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const uint8_t first = static_cast<uint8_t>(text[0]);
    if (first < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const Lead lead = LeadOf(first);
    if (lead.num_following == 0 || text.size() <= lead.num_following) return false;
    const uint8_t second = static_cast<uint8_t>(text[1]);
    if (second < lead.lower || second > lead.upper) return false;
    for (int i = 2; i <= lead.num_following; ++i) {
      if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) return false;
    }
    text.remove_prefix(lead.num_following + 1);
  }
  return true;
}

}  // namespace continuo::text
