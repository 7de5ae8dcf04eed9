// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/openai/http/request_target.h"

namespace continuo::gateway::openai {

// True if a body of this Content-Encoding is taken: none, "identity", "gzip" or "deflate".
bool IsKnownCoding(std::string_view coding);

// Replaces the body of a known coding by what it stands for, at most `max_bytes` (413). `reserve`
// is told each size that the result is about to take and refuses it with false (503). 400 if the
// bytes are not of the coding.
std::optional<HttpProblem> Inflate(std::string_view coding, size_t max_bytes,
                                   const std::function<bool(size_t)>& reserve, std::string* body);

}  // namespace continuo::gateway::openai
