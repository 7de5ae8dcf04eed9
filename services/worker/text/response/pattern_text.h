// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "services/worker/text/response/pattern_parser.h"

namespace continuo::text {

// The tree as a regular expression of Rust's, for whole characters. Anchors are left out, so it
// matches at least what the tree matches. It has no group that captures.
std::string RegexOf(const PatternNode& node);

// The bytes that stand for the groups "name" and "key" in an example.
inline constexpr char kNameInExample = '\1', kKeyInExample = '\3';

// A short text that the tree matches. None where a character would have to be made up: only white
// space is.
std::optional<std::string> ExampleOf(const PatternNode& node);

}  // namespace continuo::text
