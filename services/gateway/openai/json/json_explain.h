// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// Says why a text is no JSON: "at byte 6 (line 1, column 7): expected a value, found the end".
// Bytes are counted from 0, lines and columns (in bytes) from 1. Repeats no more of the text than
// one character or one word of another language (True, None, NaN …). Empty for valid JSON. The
// caller bounds the depth, since this recurses.
std::string ExplainJson(std::string_view text);

}  // namespace continuo::gateway::openai
