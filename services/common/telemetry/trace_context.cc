// SPDX-License-Identifier: Apache-2.0
#include "services/common/telemetry/trace_context.h"

#include <algorithm>
#include <span>

#include "absl/random/uniform_int_distribution.h"

namespace continuo::common {
namespace {

// The length of version 00: 2 + 32 + 16 + 2 digits and three dashes.
constexpr size_t kLength = 55;

// The value of a hexadecimal digit, -1 for other characters. The header is in lower case.
int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Reads the first digits of `text` as bytes. Returns false where one is not a digit.
bool ReadHex(std::string_view text, std::span<uint8_t> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    const int high = Digit(text[2 * i]), low = Digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    to[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

void AppendHex(std::span<const uint8_t> bytes, std::string& to) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const uint8_t byte : bytes) {
    to += kDigits[byte >> 4];
    to += kDigits[byte & 15];
  }
}

bool IsZero(std::span<const uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

void Fill(std::span<uint8_t> bytes, absl::BitGenRef random) {
  absl::uniform_int_distribution<int> any(0, 255);
  do {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(any(random));
  } while (IsZero(bytes));
}

}  // namespace

std::string TraceContext::TraceId() const {
  std::string id;
  AppendHex(trace_id, id);
  return id;
}

std::string TraceContext::ToHeader() const {
  std::string header = "00-";
  AppendHex(trace_id, header);
  header += '-';
  AppendHex(span_id, header);
  header += '-';
  AppendHex(std::span(&flags, 1), header);
  return header;
}

std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kLength) return std::nullopt;
  uint8_t version = 0;
  TraceContext context;
  const bool read = ReadHex(header, std::span(&version, 1)) && header[2] == '-' &&
                    ReadHex(header.substr(3), context.trace_id) && header[35] == '-' &&
                    ReadHex(header.substr(36), context.span_id) && header[52] == '-' &&
                    ReadHex(header.substr(53), std::span(&context.flags, 1));
  if (!read || version == 0xff) return std::nullopt;
  if (header.size() > kLength && (version == 0 || header[kLength] != '-')) return std::nullopt;
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  return context;
}

TraceContext MakeSpanContext(const std::optional<TraceContext>& parent, absl::BitGenRef random) {
  TraceContext context;
  if (parent.has_value()) {
    context = *parent;
  } else {
    Fill(context.trace_id, random);
    context.flags = 1;
  }
  Fill(context.span_id, random);
  return context;
}

}  // namespace continuo::common
