// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace continuo::text {

// The JSON schema of a tool's arguments. Immutable.
class ToolSchema {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr int kMaxDepth = 100;

  // "" is the schema of any object. InvalidArgument where it is no JSON object, is nested too
  // deeply, or says that arguments are no object.
  static absl::StatusOr<ToolSchema> Parse(std::string_view text);

  // The schema of the arguments, which are an object. It lists all members that an object may have
  // where it lists any and does not say that there may be others.
  const Json& root() const { return root_; }

  // A part of the schema as a document of its own: where it has references, so that they are found.
  Json Alone(const Json& part) const;
  // The schema of an object that has the name of a function and its arguments.
  Json CallValue(const char* name_key, std::string_view name, const char* arguments_key) const;
  // Returns the schema that a reference "#/..." names; null where it names nothing.
  const Json* Find(std::string_view reference) const;

  // Returns whether a keyword only describes the schema, or defines others.
  static bool IsAnnotation(std::string_view keyword);
  // Returns a keyword of a schema, which is an object, that is none of these and no annotation.
  static std::optional<std::string_view> OtherThan(
      const Json& schema, std::initializer_list<std::string_view> keywords);
  // Returns whether every value obeys the schema, as far as keywords tell.
  static bool IsAny(const Json& schema);

 private:
  Json root_;
};

}  // namespace continuo::text
