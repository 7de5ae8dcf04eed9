// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace continuo::hub {

// Parses JSON that somebody else wrote. Depth and number of values are checked before anything is
// built, so the result takes at most about 100 MB beside its texts. InvalidArgument begins with
// `name` and tells the limit, or the place where the text is no JSON. Thread-safe.
absl::StatusOr<nlohmann::json> ParseHubJson(std::string_view name, std::string_view text);

}  // namespace continuo::hub
