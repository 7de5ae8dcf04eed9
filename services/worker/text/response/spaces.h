// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace continuo::text {

// Strips ASCII's white space from the ends of a text. Abseil's functions take absl::string_view,
// which in Debian 12's build is not std's.
inline constexpr std::string_view kSpaces = " \n\t\r\f\v";

inline std::string_view StripLeft(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text;
}
inline std::string_view StripRight(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}
inline std::string_view Strip(std::string_view text) { return StripLeft(StripRight(text)); }

}  // namespace continuo::text
