// SPDX-License-Identifier: Apache-2.0
#pragma once

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

  // The schema without what only describes it, and without definitions.
  static bool IsAnnotation(std::string_view keyword);

 private:
  Json root_;
};

}  // namespace continuo::text
