// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace continuo::common {

// The version of the project, such as "0.1.0".
std::string_view Version();

}  // namespace continuo::common
