// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace continuo::gateway::openai {

// Tells a client of a path that is not served: the paths of Routes(), first the one that was
// perhaps meant, such as that of "/chat/completions" or "/v1/v1/models". Repeats at most 200 bytes
// of `path`, which is in the form of NormalPath.
std::string UnknownPathMessage(std::string_view method, std::string_view path);

}  // namespace continuo::gateway::openai
