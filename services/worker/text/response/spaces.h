// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>

namespace continuo::text {

// ASCII's white space, at the ends of a text.
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
