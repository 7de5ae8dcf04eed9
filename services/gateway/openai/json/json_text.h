// SPDX-License-Identifier: Apache-2.0
#pragma once

// JSON written straight to text, for what would take several times its size as a tree.

#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// The characters of a string's value, without its quotes. What is no UTF-8 becomes U+FFFD.
void AppendCharacters(std::string_view text, std::string* json);
// With them.
void AppendString(std::string_view text, std::string* json);
// The shortest number that reads as `value`; null where it is not finite.
void AppendNumber(double value, std::string* json);

}  // namespace continuo::gateway::openai
