// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace continuo::common {

// Length in bytes of the well-formed UTF-8 character at the beginning of `text`; 0 if there is
// none.
size_t Utf8CharacterLength(std::string_view text);

// `text` with U+FFFD for each byte that is part of no character. Whatever comes from outside and
// goes into a proto's string passes through here: protobuf refuses other bytes.
std::string ToValidUtf8(std::string_view text);

}  // namespace continuo::common
