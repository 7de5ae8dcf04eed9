// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/tool_schema.h"

#include <gtest/gtest.h>

namespace continuo::text {
namespace {

using Json = ToolSchema::Json;

TEST(ToolSchemaTest, ReferencesOfAPartAreFoundInIt) {
  const auto schema = ToolSchema::Parse(R"({"$defs": {"x": {"type": "null"}}, "properties": {
      "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/x"}}}}})");
  ASSERT_TRUE(schema.ok()) << schema.status();
  const Json alone = schema->Alone(schema->root()["properties"]["a"]);
  EXPECT_EQ(alone["properties"]["b"]["$ref"], "#/$defs/root/$defs/x");
  EXPECT_EQ(alone["$defs"]["root"]["$defs"]["x"], Json({{"type", "null"}}));
}

// A property may have the name of a keyword.
TEST(ToolSchemaTest, DataHasNoReferencesAndPropertiesOfAnyNameDo) {
  const auto schema = ToolSchema::Parse(R"({"properties": {"a": {"properties": {
      "default": {"$ref": "#/properties/z"}, "b": {"const": {"$ref": "#/properties/z"}}}}}})");
  ASSERT_TRUE(schema.ok()) << schema.status();
  const Json alone = schema->Alone(schema->root()["properties"]["a"]);
  EXPECT_EQ(alone["properties"]["default"]["$ref"], "#/$defs/root/properties/z");
  EXPECT_EQ(alone["properties"]["b"]["const"]["$ref"], "#/properties/z");
}

TEST(ToolSchemaTest, AnnotationsSayNothing) {
  EXPECT_TRUE(ToolSchema::IsAny({{"title", "x"}, {"x-y", 1}}));
  EXPECT_TRUE(ToolSchema::IsAny(true));
  EXPECT_FALSE(ToolSchema::IsAny(false));
  EXPECT_FALSE(ToolSchema::IsAny(Json::parse(R"({"": 1})")));
  EXPECT_EQ(ToolSchema::OtherThan({{"type", "null"}, {"title", "x"}, {"not", 1}}, {"type"}), "not");
}

}  // namespace
}  // namespace continuo::text
