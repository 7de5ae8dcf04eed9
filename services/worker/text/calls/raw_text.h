// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace continuo::text {

// Returns what a schema of a string demands of the string's own characters, as parts of a terminal
// of Lark: " & /…/" for each, to stand behind a terminal of any text. Takes minLength, maxLength,
// pattern and the formats that are common; InvalidArgument names what it does not take.
absl::StatusOr<std::string> TextDemands(const nlohmann::ordered_json& schema);

// A pattern of a JSON schema (ECMAScript's, found anywhere in the text) as a regular expression of
// Rust's that the whole text matches.
absl::StatusOr<std::string> WholeTextRegex(std::string_view pattern);

}  // namespace continuo::text
