// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/chat_members.h"

#include <gtest/gtest.h>

#include <string>

#include "services/gateway/openai/json/request_json.h"
#include "services/protocol/error.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

absl::StatusOr<std::string> ReadChat(const std::string& body) {
  const absl::StatusOr<ParsedCall> call = ParseCall(Endpoint::kChat, body);
  if (!call.ok()) return call.status();
  return absl::StrCat(call->requests.at(0).SerializeAsString(), call->form.include_usage,
                      call->form.continuous_usage);
}

std::string With(const std::string& members) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":"x"}],)", members, "}");
}
std::string WithMessage(const std::string& message) {
  return absl::StrCat(R"({"messages":[)", message, "]}");
}
std::string WithCall(const std::string& call) {
  return WithMessage(absl::StrCat(R"({"role":"assistant","tool_calls":[)", call, "]}"));
}
std::string WithChoice(const std::string& choice) {
  return With(absl::StrCat(R"("tools":[{"function":{"name":"f"}}],"tool_choice":)", choice));
}
std::string WithFormat(const std::string& format) {
  return With(absl::StrCat(R"("response_format":)", format));
}

const std::vector<ObjectPlace>& Places() {
  using namespace chats;  // NOLINT: the tables alone
  constexpr char kCall[] = R"({"id":"i","type":"function","function":{"name":"f"}})";
  constexpr char kFunction[] = R"({"type":"function","function":{"name":"f"}})";
  constexpr char kAllowed[] =
      R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[
          {"type":"function","function":{"name":"f"}}]}})";
  constexpr char kFormat[] = "/response_format";
  static const auto* const places = new std::vector<ObjectPlace>{
      {&kMessage, WithMessage(R"({"role":"user","content":"a"})"), "/messages/0"},
      {&kMessage, WithMessage(R"({"role":"assistant","content":"a"})"), "/messages/0"},
      {&kTextPart, WithMessage(R"({"role":"user","content":[{"type":"text","text":"a"}]})"),
       "/messages/0/content/0"},
      {&kRefusalPart,
       WithMessage(R"({"role":"assistant","content":[{"type":"refusal","refusal":"a"}]})"),
       "/messages/0/content/0"},
      {&kToolCall, WithCall(kCall), "/messages/0/tool_calls/0"},
      {&kCalledFunction, WithCall(kCall), "/messages/0/tool_calls/0/function"},
      {&kTool, With(absl::StrCat(R"("tools":[)", kFunction, "]")), "/tools/0"},
      {&kToolFunction, With(absl::StrCat(R"("tools":[)", kFunction, "]")), "/tools/0/function"},
      {&kChoice, WithChoice(kFunction), "/tool_choice"},
      {&kChoice, WithChoice(kAllowed), "/tool_choice/allowed_tools/tools/0"},
      {&kChosenFunction, WithChoice(kFunction), "/tool_choice/function"},
      {&kChosenFunction, WithChoice(kAllowed), "/tool_choice/allowed_tools/tools/0/function"},
      {&kAllowedChoice, WithChoice(kAllowed), "/tool_choice"},
      {&kAllowedTools, WithChoice(kAllowed), "/tool_choice/allowed_tools"},
      {&kStreamOptions, With(R"("stream":true,"stream_options":{})"), "/stream_options"},
      {&kStreamOptions, With(R"("stream_options":{})"), "/stream_options"},
      {&kTextFormat, WithFormat(R"({"type":"text"})"), kFormat},
      {&kObjectFormat, WithFormat(R"({"type":"json_object"})"), kFormat},
      {&kSchemaFormat, WithFormat(R"({"type":"json_schema","schema":{"type":"object"}})"), kFormat},
      {&kNamedSchema,
       WithFormat(R"({"type":"json_schema","json_schema":{"schema":{"type":"object"}}})"),
       "/response_format/json_schema"},
      {&kNamedSchema,
       WithFormat(R"({"type":"json_schema","value":{"name":"n","schema":{"type":"object"}}})"),
       "/response_format/value"},
      {&kRegexFormat, WithFormat(R"({"type":"regex","pattern":"a"})"), kFormat},
      {&kStructuredOutputs, With(R"("structured_outputs":{})"), "/structured_outputs"},
  };
  return *places;
}

TEST(ChatMembersTest, EachMemberDoesWhatItsRowSays) {
  CheckObjects(chats::Objects(), Places(), ReadChat);
}

// A second schema would be ignored, whichever of the two were read.
TEST(ChatMembersTest, AFormatHasOneSchema) {
  const std::string schema = R"({"type":"object"})";
  const std::string named = absl::StrCat(R"({"schema":)", schema, "}");
  const std::pair<std::string, std::string> both[] = {
      {absl::StrCat(R"("json_schema":)", named, R"(,"value":)", named), "response_format.value"},
      {absl::StrCat(R"("schema":)", schema, R"(,"value":)", named), "response_format.value.schema"},
      {absl::StrCat(R"("schema":)", schema, R"(,"json_schema":)", named),
       "response_format.json_schema.schema"},
  };
  for (const auto& [members, field] : both) {
    const std::string body = WithFormat(absl::StrCat(R"({"type":"json_schema",)", members, "}"));
    const absl::Status status = ReadChat(body).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << body;
    EXPECT_EQ(protocol::FieldOf(status), field) << body;
  }
}

TEST(ChatMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("chats", ObjectsTable(chats::Objects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
