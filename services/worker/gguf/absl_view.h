// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace continuo::gguf {

// Debian's Abseil has a string_view of its own, which StrCat takes.
inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace continuo::gguf
