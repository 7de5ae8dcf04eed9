// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes JSON straight to text, for values that would take several times their size as a tree.

#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// Appends the characters of a string without quotes. Bytes that are no UTF-8 become U+FFFD.
void AppendCharacters(std::string_view text, std::string* json);
// Appends the string with its quotes.
void AppendString(std::string_view text, std::string* json);
// Appends the shortest number that reads as `value`, or null if that is not finite.
void AppendNumber(double value, std::string* json);
// The same JSON, which is valid, on one line: without the white space between its tokens.
std::string OneLine(std::string_view json);

}  // namespace continuo::gateway::openai
