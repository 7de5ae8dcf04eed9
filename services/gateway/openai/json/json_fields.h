// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads members of a JSON object from a client and checks their types. A member that is absent or
// null leaves the value as it was. Errors are INVALID_ARGUMENT and name the member
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

// Parses a body that is one object. Checks depth, number of values and UTF-8 before it builds
// anything; INVALID_ARGUMENT names the limit, or a member that one object has twice.
absl::StatusOr<Json> ParseObject(std::string_view body);

// Says why a text is no JSON: "at byte 6 (line 1, column 7): expected a value, found the end".
// Bytes are counted from 0, lines and columns (in bytes) from 1. Repeats no more of the text than
// one character or one word of another language (True, None, NaN …). Empty for valid JSON. The
// caller bounds the depth, since this recurses. Defined in json_explain.cc.
std::string ExplainJson(std::string_view text);

// A member's name that the client made up, as an error tells it: at most 64 bytes of it, cut where
// a character ends; quotes where it is empty.
std::string ShowName(std::string_view name);

// An error whose text has a word of the client's, which may be anything. `logged` says the same
// without it.
absl::Status WithClientsWord(absl::Status status, std::string_view logged);
// The status as it may be logged: one of WithClientsWord becomes the text without the word.
absl::Status WithoutClientsWords(const absl::Status& status);

// Null if the object has no such member, or if that is null.
const Json* Find(const Json& object, const char* name);

// INVALID_ARGUMENT "path: must be `expected`, is …".
absl::Status WrongType(std::string_view path, std::string_view expected, const Json& value);

absl::Status Read(const Json& object, const char* path, std::optional<float>* value);
absl::Status Read(const Json& object, const char* path, std::optional<bool>* value);
absl::Status Read(const Json& object, const char* path, std::optional<std::string>* value);
// Reads a boolean that the object at `parent` may have.
absl::Status ReadNested(const Json& object, std::string_view parent, const char* name,
                        std::optional<bool>* value);

// Reads a text that the object at `path` may have, or has to have.
absl::Status ReadText(const Json& object, const char* name, const std::string& path,
                      std::string* value);
absl::Status NeedText(const Json& object, const char* name, const std::string& path,
                      std::string* value);

// The value as an integer, if it is one: 16, and also 16.0 and 1.6e1. Null for other values.
struct Integer {
  bool is_negative = false;
  uint64_t magnitude = 0;
};
std::optional<Integer> IntegerOf(const Json& value);

// Reads an integer from `min` to `max`.
absl::Status ReadInteger(const Json& object, const char* path, int64_t min, int64_t max,
                         std::optional<int64_t>* value);

}  // namespace continuo::gateway::openai
