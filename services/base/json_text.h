// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/status/status.h"

namespace continuo {

// Checks that the bytes of a file are one JSON value that every reader takes alike. A byte order
// mark of UTF-8 may begin it. InvalidArgument begins with `name` and tells line and column where it
// is no JSON (NaN and Infinity are none), is nested deeper than `max_depth`, has more than
// `max_values` values, or names a field of one object twice; where it is a file of another kind, it
// says which (foreign_file.h). Any bytes may be passed. Thread-safe.
absl::Status CheckJson(std::string_view name, std::string_view text, int max_depth,
                       int64_t max_values = std::numeric_limits<int64_t>::max());

}  // namespace continuo
