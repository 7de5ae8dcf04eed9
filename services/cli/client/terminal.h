// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats text and figures for a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace continuo::cli {

// Makes text harmless for a terminal: control characters other than newline and tab become U+FFFD,
// so that a model cannot send escape sequences. Characters of several bytes have to be whole.
std::string ForTerminal(std::string_view text);
// The same in one line: newlines become spaces.
std::string LineForTerminal(std::string_view text);

// Formats "[######      ] 50%" with `width` columns for the bar; `fraction` is clamped to [0, 1].
std::string ProgressBar(double fraction, size_t width);

// Formats with three digits: "1.23 s", "45.6 ms", "789 us".
std::string FormatSeconds(double seconds);

// Formats "12.3k" or "4.56M"; counts below 1000 stay as they are.
std::string FormatCount(double count);

}  // namespace continuo::cli
