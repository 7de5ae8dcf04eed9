// SPDX-License-Identifier: Apache-2.0
// The keywords of JSON schema: what each means, and which are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/worker/text/grammar/grammar.h"
#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SchemaTest : public ::testing::Test {
 protected:
  const std::unique_ptr<text::TextModel> model_ = OpenTestModel("byte_level");

  absl::Status Compile(const std::string& schema) {
    return text::Grammar::Compile(*model_, SchemaSource(schema)).status();
  }
};

TEST_F(SchemaTest, WhatIsNotCoveredIsRefusedByKeywordAndPointer) {
  const struct {
    const char *schema, *error;
  } kCases[] = {
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems at /uniqueItems: not supported"},
      {R"({"type": "array", "contains": {}})", "contains at /contains: "},
      {R"({"minContains": 1})", "minContains at /minContains: "},
      {R"({"not": {"type": "null"}})", "not at /not: "},
      {R"({"if": {}, "then": {}})", "if at /if: "},
      {R"({"properties": {"a/b~c": {"else": {}}}})", "else at /properties/a~1b~0c/else: "},
      {R"({"dependentSchemas": {}})", "dependentSchemas at /dependentSchemas: "},
      {R"({"dependentRequired": {}})", "dependentRequired at /dependentRequired: "},
      {R"({"dependencies": {}})", "dependencies at /dependencies: "},
      {R"({"propertyNames": {}})", "propertyNames at /propertyNames: "},
      {R"({"unevaluatedProperties": false})", "unevaluatedProperties at /unevaluatedProperties: "},
      {R"({"anyOf": [{}, {"unevaluatedItems": false}]})", "unevaluatedItems at /anyOf/1/"},
      {R"({"$dynamicRef": "#a"})", "$dynamicRef at /$dynamicRef: "},
      {R"({"$recursiveRef": "#"})", "$recursiveRef at /$recursiveRef: "},
      {R"({"$vocabulary": {}})", "$vocabulary at /$vocabulary: "},
      {R"({"contentSchema": {}})", "contentSchema at /contentSchema: "},
      {R"({"propertis": {}})", "propertis at /propertis: "},
      {R"({"x-guidance": {"lenient": true}})", "x-guidance at /x-guidance: "},
      {R"({"items": {"$id": "http://a/b"}})", "$id at /items/$id: "},
      {R"({"$schema": "http://json-schema.org/draft-03/schema"})", "$schema at /$schema: "},
      {R"({"$ref": "http://a/b"})", "$ref at /$ref: only references within the schema"},
      {R"({"$ref": "#name"})", "$ref at /$ref: only references within the schema"},
      {R"({"$ref": "#/"})", "$ref at /$ref: only references within the schema"},
      {R"({"$ref": "#/$defs/a~1b"})", "$ref at /$ref: names with a slash"},
      {R"({"$ref": "#/$defs/a"})", "$ref at /$ref: names nothing"},
      {R"({"$ref": 1})", "$ref at /$ref: "},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"not": {}}}})", "not at /$defs/a/not: "},
      {R"({"$ref": "#/default", "default": {"not": {}}})", "not at /default/not: "},
      {R"({"type": "string", "format": "regex"})", "format at /format: \"regex\" is not supported"},
      {R"({"format": "unknown"})", "format at /format: "},
      {R"j({"pattern": "(?=a)"})j", "pattern at /pattern: look-around"},
      {R"j({"pattern": "(a)\\1"})j", "pattern at /pattern: backreferences"},
      {R"({"pattern": "a\\b"})", "pattern at /pattern: word boundaries"},
      {R"j({"pattern": "(?i)a"})j", "pattern at /pattern: "},
      {R"({"pattern": "[a&&b]"})", "pattern at /pattern: "},
      {R"j({"pattern": "("})j", "pattern at /pattern: "},
      {R"({"pattern": 1})", "pattern at /pattern: not a string"},
      {R"j({"patternProperties": {"(?=a)": {}}})j",
       "patternProperties at /patternProperties: look"},
      {R"({"patternProperties": {"a": {}, "b": {}}})", "patternProperties at /patternProperties: "},
      {R"({"type": "strin"})", "type at /type: \"strin\" is not supported"},
      {R"({"type": []})", "type at /type: "},
      {R"({"enum": []})", "enum at /enum: "},
      {R"({"const": 9007199254740993})", "const at /const: integers beyond"},
      {R"({"enum": [{"a": [9007199254740993]}]})", "enum at /enum: integers beyond"},
      {R"({"anyOf": []})", "anyOf at /anyOf: "},
      {R"({"anyOf": {}})", "anyOf at /anyOf: "},
      {R"({"allOf": [1]})", "allOf at /allOf: a schema is"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf at /oneOf: options"},
      {R"({"items": [{}]})", ""},
      {R"({"additionalItems": false})", "additionalItems at /additionalItems: "},
      {R"({"prefixItems": [{}], "$schema": "http://json-schema.org/draft-07/schema#"})",
       "prefixItems at /prefixItems: unknown to the draft"},
      {R"({"properties": []})", "properties at /properties: "},
      {R"({"required": "a"})", "required at /required: "},
      {R"({"minProperties": 2})", "minProperties at /minProperties: more than one"},
      {R"({"properties": {"a": {}}, "maxProperties": 1})", "minProperties at /maxProperties: "},
      {R"({"minLength": -1})", "minLength at /minLength: "},
      {R"({"maxItems": 1.5})", "maxItems at /maxItems: "},
      {R"({"maxLength": 1000000000})", "maxLength at /maxLength: more than 100000"},
      {R"({"minimum": "1"})", "minimum at /minimum: "},
      {R"({"minimum": 1e300})", "minimum at /minimum: "},
      {R"({"exclusiveMinimum": true})", "exclusiveMinimum at /exclusiveMinimum: "},
      {R"({"multipleOf": 0})", "multipleOf at /multipleOf: "},
      {R"({"multipleOf": 1e-300})", "multipleOf at /multipleOf: "},
      {R"({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]})", "multipleOf at "},
      {R"({"type": "integer", "minimum": 2, "maximum": 1})", "Unsatisfiable"},
      {R"({"type": "string", "const": 1})", "Unsatisfiable"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a", "type": "object"}}})",
       "circular"},
      {"false", "not a JSON object"},
      {"[]", "not a JSON object"},
      {"{", "not JSON"},
  };
  for (const auto& [schema, error] : kCases) {
    if (*error == '\0') {
      EXPECT_TRUE(Compile(schema).ok()) << schema;
      continue;
    }
    const absl::Status status = Compile(schema);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << schema;
    EXPECT_THAT(std::string(status.message()), StartsWith("the schema")) << schema;
    EXPECT_THAT(status.message(), HasSubstr(error)) << schema;
  }
}

TEST_F(SchemaTest, AnnotationsAreHarmless) {
  const absl::Status status = Compile(R"({
    "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://a/b", "$comment": "c",
    "$anchor": "a", "title": "T", "description": "d", "default": {"not": 1}, "examples": [1],
    "deprecated": true, "nullable": true, "readOnly": true, "writeOnly": false, "contentMediaType": "text/plain",
    "contentEncoding": "base64", "discriminator": {"propertyName": "kind"}, "x-order": 1,
    "$defs": {"unused": {"not": {}}}, "type": "object",
    "properties": {"id": {"title": "t"}, "not": {"type": "null"}, "$ref": {}}})");
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SchemaTest, KeywordsMeanWhatTheStandardSays) {
  const struct {
    const char* schema;
    std::vector<const char*> valid, invalid;
  } kCases[] = {
      // Further properties come behind the others, which come as they are listed.
      {R"({"properties": {"a": {"type": "integer"}, "b": {}}})",
       {R"({"a":1,"b":2,"c":"x"})", R"({"b":2})", R"({"c":{}})", "1", "[]"},
       {R"({"a":"x"})", R"({"\u0061":"x"})", R"({"b":2,"a":1})", R"({"c":1,"a":1})"}},
      {R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "null"}})",
       {R"({"z":null})", R"({"z":null,"y":null})"},
       {"{}", R"({"y":null})", R"({"z":1})"}},
      {R"({"type": "object", "required": ["a"], "properties": {"a": {}}, "minProperties": 2})",
       {R"({"a":1,"b":1})"},
       {R"({"a":1})"}},
      {R"({"type": "object", "patternProperties": {"^x": {"type": "null"}}, "additionalProperties": false})",
       {R"({"xy":null})", "{}"},
       {R"({"y":null})", R"({"xy":1})"}},
      {R"({"pattern": "b+"})", {R"("abbc")", "1"}, {R"("ac")"}},
      {R"({"type": "string", "pattern": "^a|b$"})", {R"("ac")", R"("cb")"}, {R"("ca")", R"("bc")"}},
      {R"({"type": "string", "pattern": "^\\d$"})", {R"("7")"}, {R"("٣")"}},
      {R"({"type": "string", "pattern": "^\\D$"})", {R"("é")"}, {R"("7")", R"("٣")"}},
      {R"({"type": "string", "pattern": "^.$"})", {R"("a")", R"("\t")"}, {R"("\n")", R"("\r")"}},
      {R"({"type": "string", "maxLength": 2})", {R"("é😀")", R"("\"\\")"}, {R"("abc")"}},
      {R"({"type": "string"})", {R"("\n")", R"("é")"}, {R"("\u000a")", R"("\u00e9")", R"("\/")"}},
      {R"({"type": "integer"})", {"0", "-1", "10"}, {"1.0", "1e3", "01", "+1"}},
      {R"({"type": "number"})", {"1", "1.5", "-2e-3"}, {".5", "1.", "NaN"}},
      {R"({"type": "integer", "maximum": 18446744073709551615})",
       {"9007199254740992"},
       {"9007199254740993"}},
      {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})",
       {"0.5", "1"},
       {"0", "-1", "1.1"}},
      {R"({"multipleOf": 0.5, "type": "number"})", {"1", "2.5"}, {"2.3"}},
      {R"({"const": {"a": [1, "x", null]}})",
       {R"({"a":[1,"x",null]})", R"({"a": [1, "x", null]})"},
       {"{}"}},
      {R"({"enum": ["a\"b", 1, true]})", {R"("a\"b")", "1", "true"}, {"2", "false"}},
      {R"({"items": [{"type": "null"}], "additionalItems": false, "type": "array"})",
       {"[]", "[null]"},
       {"[1]", "[null,null]"}},
      {R"({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "type": "array", "minItems": 1})",
       {"[null]", "[null, 1]"},
       {"[]", "[1]", "[null,null]"}},
      {R"({"exclusiveMinimum": true, "minimum": 1, "type": "integer", "$schema": "http://json-schema.org/draft-04/schema#"})",
       {"2"},
       {"1"}},
      {R"({"oneOf": [{"type": "null"}, {"type": "integer"}]})", {"null", "1"}, {"true"}},
      {R"({"type": ["null", "string"], "maxLength": 1})", {"null", R"("a")"}, {"1", R"("ab")"}},
      {R"({"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}})", {"null"}, {"1"}},
      {R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false})",
       {"{}", R"({"next":{"next":{}}})"},
       {R"({"next":1})"}},
      {R"({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 3}]})", {"2", "3"}, {"1", "4"}},
      {R"({"type": "string", "format": "date"})",
       {R"("2024-02-29")"},
       {R"("2024-02-30")", R"("x")"}},
      // At most one end of line and an indentation between what belongs together; none at the ends.
      {R"({"type": "array"})",
       {"[1, 2]", "[1,2]", "[\n    1,\r\n\t2\n]", "[ ]"},
       {"[1,\n\n2]", "[1,    2]", " [1]", "[1] "}},
  };
  for (const auto& [schema, valid, invalid] : kCases) {
    for (const char* answer : valid) {
      EXPECT_TRUE(IsAnswer(*model_, SchemaSource(schema), answer)) << schema << " " << answer;
    }
    for (const char* answer : invalid) {
      EXPECT_FALSE(IsAnswer(*model_, SchemaSource(schema), answer)) << schema << " " << answer;
    }
  }
}

TEST_F(SchemaTest, SchemasInLarkAreTheSame) {
  const auto compile = [&](const std::string& lark) {
    return text::Grammar::Compile(*model_, LarkSource(lark)).status();
  };
  EXPECT_THAT(compile(R"(start: %json {"uniqueItems": true})").message(),
              HasSubstr("uniqueItems at /uniqueItems"));
  EXPECT_THAT(compile("start: %json {").message(), HasSubstr("%json: not JSON"));
  const Source source = LarkSource("start: \"%json {}\" %json {\"type\": \"array\"} // %json 1\n");
  EXPECT_TRUE(IsAnswer(*model_, source, "%json {}[1, 2]"));
  EXPECT_FALSE(IsAnswer(*model_, source, "%json {}[1,    2]"));
}

}  // namespace
}  // namespace continuo::testing
