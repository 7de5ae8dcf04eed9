// SPDX-License-Identifier: Apache-2.0
#pragma once

// Members of a JSON object that a client sent, read with a check of their type. A member that is
// absent or null leaves the value as it was. Errors are INVALID_ARGUMENT and name the member
// (FieldError) by `path`, the place in the body: "temperature", "messages[3].role".

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::gateway::openai {

using Json = nlohmann::json;

// One object out of the bytes of a body. Bounded in depth and in the number of values, and valid
// UTF-8, before any of it is built; INVALID_ARGUMENT names the limit.
absl::StatusOr<Json> ParseObject(std::string_view body);

// Null where the object has no such member, or it is null.
const Json* Find(const Json& object, const char* name);

// INVALID_ARGUMENT "path: must be `expected`, is …".
absl::Status WrongType(std::string_view path, std::string_view expected, const Json& value);

absl::Status Read(const Json& object, const char* path, std::optional<float>* value);
absl::Status Read(const Json& object, const char* path, std::optional<bool>* value);
absl::Status Read(const Json& object, const char* path, std::optional<std::string>* value);
// From `min` to `max`.
absl::Status ReadInteger(const Json& object, const char* path, int64_t min, int64_t max,
                         std::optional<int64_t>* value);

}  // namespace continuo::gateway::openai
