// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/json_fields.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "services/base/json_text.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// The payload of errors that have a word of the client's: what a log says instead.
constexpr absl::string_view kClientsWord = "continuo/clients_word";

constexpr int kMaxDepth = 32;
// The limit inside members that have JSON schemas. The worker's readers take as much.
constexpr int kMaxSchemaDepth = 127;
constexpr std::string_view kSchemaMembers[] = {
    "tools",       "response_format", "structured_outputs", "guided_json",
    "json_schema", "output_format",   "output_config",      "text"};
// A value takes up to 100 bytes of memory, and as little as two bytes of a body.
constexpr int kMaxValues = 1 << 20;

// Checks nesting and number of values of a text without building anything. The counts are exact for
// JSON; for other texts they are at least what the parser meets before it gives up.
absl::Status CheckSize(std::string_view text) {
  int depth = 0, values = 1, max_depth = kMaxDepth;
  bool in_string = false;
  std::string_view name;  // the last string, with what its quotes hold
  size_t name_begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
        name = text.substr(name_begin, i - name_begin);
      }
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        name_begin = i + 1;
        break;
      case ':':
        if (depth == 1) {
          const bool has_schemas =
              std::ranges::find(kSchemaMembers, name) != std::end(kSchemaMembers);
          max_depth = has_schemas ? kMaxSchemaDepth : kMaxDepth;
        }
        break;
      case '[':
      case '{':
        ++values;
        if (++depth > max_depth) {
          return absl::InvalidArgumentError(
              absl::StrCat("the body's JSON is nested deeper than ", max_depth, " levels"));
        }
        break;
      case ']':
      case '}':
        --depth;
        break;
      case ',':
        ++values;
        break;
      default:
        break;
    }
    if (values > kMaxValues) {
      return absl::InvalidArgumentError(
          absl::StrCat("the body's JSON has more than ", kMaxValues, " values"));
    }
  }
  return absl::OkStatus();
}

// The value as an error tells it. Texts are not repeated: errors are logged, prompts are not.
std::string Describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    default:
      return value.dump();
  }
}

}  // namespace

absl::StatusOr<Json> ParseObject(std::string_view body) {
  if (const absl::Status status = CheckSize(body); !status.ok()) return status;
  Json json = Json::parse(body, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    if (body.empty())
      return absl::InvalidArgumentError("the body is empty; it must be a JSON object");
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not valid JSON: ", ExplainJson(body)));
  }
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body must be a JSON object, is ", Describe(json)));
  }
  // A reader would take one of the values and ignore the other.
  if (const absl::Status twice = CheckJson("the body", body, kMaxSchemaDepth); !twice.ok()) {
    return WithClientsWord(twice, "an object of the body's JSON has a member twice");
  }
  return json;
}

std::string ShowName(std::string_view name) {
  constexpr size_t kMaxBytes = 64;
  if (name.empty()) return "\"\"";
  if (name.size() <= kMaxBytes) return std::string(name);
  size_t end = 0;
  while (end < kMaxBytes) end += std::max<size_t>(Utf8CharacterLength(name.substr(end)), 1);
  return absl::StrCat(std::string(name.substr(0, end)), "\xe2\x80\xa6");
}

absl::Status WithClientsWord(absl::Status status, std::string_view logged) {
  status.SetPayload(kClientsWord, absl::Cord(std::string(logged)));
  return status;
}

absl::Status WithoutClientsWords(const absl::Status& status) {
  const auto logged = status.GetPayload(kClientsWord);
  return logged.has_value() ? absl::Status(status.code(), std::string(*logged)) : status;
}

const Json* Find(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

absl::Status WrongType(std::string_view path, std::string_view expected, const Json& value) {
  return protocol::FieldError(
      path, absl::StrCat("must be ", std::string(expected), ", is ", Describe(value)));
}

absl::Status Read(const Json& object, const char* path, std::optional<float>* value) {
  const Json* const json = Find(object, path);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_number()) return WrongType(path, "a number", *json);
  // A value that a float cannot hold becomes infinite, which no field takes.
  *value = static_cast<float>(json->get<double>());
  return absl::OkStatus();
}

absl::Status Read(const Json& object, const char* path, std::optional<bool>* value) {
  return ReadNested(object, "", path, value);
}

absl::Status ReadNested(const Json& object, std::string_view parent, const char* name,
                        std::optional<bool>* value) {
  const Json* const json = Find(object, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_boolean()) {
    return WrongType(absl::StrCat(std::string(parent), parent.empty() ? "" : ".", name),
                     "a boolean", *json);
  }
  *value = json->get<bool>();
  return absl::OkStatus();
}

absl::Status Read(const Json& object, const char* path, std::optional<std::string>* value) {
  const Json* const json = Find(object, path);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_string()) return WrongType(path, "a string", *json);
  *value = json->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadText(const Json& object, const char* name, const std::string& path,
                      std::string* value) {
  const Json* const json = Find(object, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_string()) return WrongType(absl::StrCat(path, ".", name), "a string", *json);
  *value = json->get<std::string>();
  return absl::OkStatus();
}

absl::Status NeedText(const Json& object, const char* name, const std::string& path,
                      std::string* value) {
  if (Find(object, name) == nullptr) {
    return protocol::FieldError(absl::StrCat(path, ".", name), "is needed");
  }
  return ReadText(object, name, path, value);
}

std::optional<Integer> IntegerOf(const Json& value) {
  if (value.is_number_unsigned()) return Integer{.magnitude = value.get<uint64_t>()};
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    if (number >= 0) return Integer{.magnitude = static_cast<uint64_t>(number)};
    return Integer{.is_negative = true, .magnitude = ~static_cast<uint64_t>(number) + 1};
  }
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (std::trunc(number) != number) return std::nullopt;
  const double magnitude = std::abs(number);
  return Integer{.is_negative = number < 0,
                 .magnitude = magnitude < 0x1p64 ? static_cast<uint64_t>(magnitude) : ~uint64_t{0}};
}

absl::Status ReadInteger(const Json& object, const char* path, int64_t min, int64_t max,
                         std::optional<int64_t>* value) {
  const Json* const json = Find(object, path);
  if (json == nullptr) return absl::OkStatus();
  const std::optional<Integer> integer = IntegerOf(*json);
  if (!integer.has_value()) return WrongType(path, "an integer", *json);
  const bool fits = integer->magnitude <= static_cast<uint64_t>(INT64_MAX);
  const auto magnitude = static_cast<int64_t>(fits ? integer->magnitude : 0);
  const int64_t number = integer->is_negative ? -magnitude : magnitude;
  if (!fits || number < min || number > max) {
    return protocol::FieldError(
        path, absl::StrCat("is ", json->dump(), ", must be from ", min, " to ", max));
  }
  *value = number;
  return absl::OkStatus();
}

}  // namespace continuo::gateway::openai
