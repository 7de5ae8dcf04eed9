// SPDX-License-Identifier: Apache-2.0
#pragma once

// What goes to a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace continuo::cli {

// Text made harmless for a terminal: control characters but newline and tab become U+FFFD, so that
// a model cannot send escape sequences. Characters of several bytes have to be whole.
std::string ForTerminal(std::string_view text);

// "[######      ] 50%", `width` columns for the bar; `fraction` is cut to [0, 1].
std::string ProgressBar(double fraction, size_t width);

// "1.23 s", "45.6 ms", "789 us": three digits.
std::string FormatSeconds(double seconds);

// "12.3k", "4.56M"; below 1000 as it is.
std::string FormatCount(double count);

}  // namespace continuo::cli
