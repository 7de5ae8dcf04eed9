// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "services/worker/model/description/json_file.h"

// A field that nothing reads may say something that the answer depends on. Such a model is refused
// by name, unless its user knows better.
namespace continuo::model {

// True if one of the patterns, which commas separate, matches: * stands for any characters, ? for
// one.
bool MatchesAny(std::string_view patterns, std::string_view name);

// Unimplemented names a field that was never asked for, that is not off (null, false, empty), not
// known to change no answer, not one of the words of `ignored`, and not taken by the patterns
// `allow_unread`.
absl::Status CheckUnread(const JsonObject& json, std::string_view ignored,
                         std::string_view allow_unread);

// Unimplemented names a field that has another value than the JSON object `expected` says. Absent
// and null ones are as expected.
absl::Status CheckExpected(JsonObject& json, std::string_view expected);

}  // namespace continuo::model
