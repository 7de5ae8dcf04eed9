// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace continuo::text {

// A schema, a document of its own, for values that obey `schema` and whose strings and names of
// members do not contain `marker`: what would end a value, or begin a call, is in none of them.
// Where a schema allows members that it does not list, they are allowed only if it lists none.
nlohmann::ordered_json WithoutMarker(nlohmann::ordered_json schema, std::string_view marker);

// A regular expression of ECMAScript's that matches the texts without `marker`; "" where there is
// none because the marker's first character is in it twice.
std::string TextWithout(std::string_view marker);

}  // namespace continuo::text
