// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace continuo::cli {
namespace {

// Formats with three significant digits.
std::string Digits(double value) {
  char text[32];
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::snprintf(text, sizeof(text), "%.*f", decimals, value);
  return text;
}

}  // namespace

std::string ForTerminal(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
    // U+0080 to U+009F are the bytes C2, then 80 to 9F.
    const bool c1 =
        c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (c0 || c1) {
      result += "\xEF\xBF\xBD";
      if (c1) ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string LineForTerminal(std::string_view text) {
  std::string line = ForTerminal(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::string ProgressBar(double fraction, size_t width) {
  fraction = std::clamp(std::isfinite(fraction) ? fraction : 0.0, 0.0, 1.0);
  const auto filled = static_cast<size_t>(fraction * static_cast<double>(width));
  std::string bar = "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "] ";
  return bar + std::to_string(static_cast<int>(fraction * 100)) + "%";
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds >= 1) return Digits(seconds) + " s";
  if (seconds >= 1e-3) return Digits(seconds * 1e3) + " ms";
  return Digits(seconds * 1e6) + " us";
}

std::string FormatCount(double count) {
  if (count >= 1e9) return Digits(count / 1e9) + "G";
  if (count >= 1e6) return Digits(count / 1e6) + "M";
  if (count >= 1e3) return Digits(count / 1e3) + "k";
  return count == std::floor(count) ? std::to_string(static_cast<int>(count)) : Digits(count);
}

}  // namespace continuo::cli
