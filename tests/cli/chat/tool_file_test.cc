// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/tool_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace continuo::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Error(const std::string& text) {
  return std::string(ParseTools("t.json", text).status().message());
}

TEST(ToolFileTest, AllMembersAreRead) {
  const auto tools = ParseTools("t.json", R"([
    {"type": "function",
     "function": {"name": "weather", "description": "Tells the weather.", "strict": true,
                  "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}},
     "command": ["./weather", "--now", ""]},
    {"type": "function", "function": {"name": "time"}, "command": ["date"]}])");
  ASSERT_TRUE(tools.ok()) << tools.status();
  ASSERT_EQ(tools->size(), 2);
  const LocalTool& weather = tools->at(0);
  EXPECT_EQ(weather.definition.name(), "weather");
  EXPECT_EQ(weather.definition.description(), "Tells the weather.");
  EXPECT_EQ(weather.definition.parameters(), R"({"type":"object","properties":{"z":{},"a":{}}})");
  EXPECT_TRUE(weather.definition.strict());
  EXPECT_THAT(weather.command, ElementsAre("./weather", "--now", ""));
  EXPECT_EQ(tools->at(1).definition.parameters(), "");
  EXPECT_FALSE(tools->at(1).definition.strict());
}

TEST(ToolFileTest, ErrorsNameTheMember) {
  const auto with = [](const std::string& function, const std::string& rest) {
    return Error(R"([{"type": "function", "function": {)" + function + "}" + rest + "}]");
  };
  const std::string command = R"(, "command": ["x"])";
  EXPECT_THAT(Error("[{"), HasSubstr("t.json"));
  EXPECT_THAT(Error(R"([{"type": "function", "type": "function"}])"), HasSubstr("type"));
  EXPECT_EQ(Error("{}"), "t.json: is no array of 1 to 1024 tools");
  EXPECT_EQ(Error("[]"), "t.json: is no array of 1 to 1024 tools");
  EXPECT_EQ(Error("[1]"), "t.json: [0] is no object");
  EXPECT_EQ(Error("[{}]"), "t.json: [0].type is not \"function\"");
  EXPECT_EQ(Error(R"([{"type": "function", "comand": []}])"),
            "t.json: [0] has the unknown member \"comand\"");
  EXPECT_EQ(with(R"("name": "x")", ""), "t.json: [0].command is missing");
  EXPECT_EQ(with(R"("name": "x", "names": 1)", command),
            "t.json: [0].function has the unknown member \"names\"");
  EXPECT_EQ(with(R"("name": "x y")", command),
            "t.json: [0].function.name is no name of 1 to 64 letters, digits, _ and -");
  EXPECT_EQ(with("", command),
            "t.json: [0].function.name is no name of 1 to 64 letters, digits, _ and -");
  EXPECT_EQ(with(R"("name": "x", "description": 1)", command),
            "t.json: [0].function.description is no string");
  EXPECT_EQ(with(R"("name": "x", "parameters": [])", command),
            "t.json: [0].function.parameters is no object");
  EXPECT_EQ(with(R"("name": "x", "strict": 1)", command),
            "t.json: [0].function.strict is neither true nor false");
  EXPECT_EQ(with(R"("name": "x")", R"(, "command": "ls -l")"),
            "t.json: [0].command is no array of a program and its arguments");
  EXPECT_EQ(with(R"("name": "x")", R"(, "command": [])"),
            "t.json: [0].command is no array of a program and its arguments");
  EXPECT_EQ(with(R"("name": "x")", R"(, "command": ["ls", 1])"),
            "t.json: [0].command has an item that is no string");
  EXPECT_EQ(with(R"("name": "x")", R"(, "command": ["ls", "\u0000"])"),
            "t.json: [0].command has a NUL character");
  EXPECT_EQ(with(R"("name": "x")", R"(, "command": [""])"),
            "t.json: [0].command has an empty program");
}

TEST(ToolFileTest, ANameIsGivenOnce) {
  const std::string tool =
      R"({"type": "function", "function": {"name": "weather"}, "command": ["x"]})";
  EXPECT_EQ(Error("[" + tool + "," + tool + "]"),
            "t.json: [1].function.name \"weather\" is that of another tool");
}

TEST(ToolFileTest, AFileThatCannotBeReadIsNamed) {
  EXPECT_THAT(std::string(ReadTools("/no/such.json").status().message()),
              StartsWith("/no/such.json: cannot be read: "));
  EXPECT_THAT(std::string(ReadTools("/").status().message()), StartsWith("/"));
  EXPECT_EQ(ReadTools("/dev/zero").status().message(), "/dev/zero: has more than 1048576 bytes");
}

}  // namespace
}  // namespace continuo::cli
