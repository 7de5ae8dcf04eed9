// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_members.h"

#include <gtest/gtest.h>

#include <string>

#include "services/gateway/openai/messages/messages_request.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

constexpr char kUser[] = R"({"role":"user","content":"Hello"})";

// A body with more members in front of the messages.
std::string With(const std::string& members, const std::string& all_messages = kUser) {
  return absl::StrCat(R"({"max_tokens":5,)", members, R"("messages":[)", all_messages, "]}");
}
// A body whose first message has one block, and whose last one is a user's.
std::string WithBlock(const std::string& role, const std::string& block) {
  return With("", absl::StrCat(R"({"role":")", role, R"(","content":[)", block, "]},", kUser));
}
std::string WithChoice(const std::string& choice) {
  return With(absl::StrCat(R"("tools":[{"name":"f","input_schema":{"type":"object"}}],)",
                           R"("tool_choice":)", choice, ","));
}

const std::vector<ObjectPlace>& Places() {
  using namespace messages;  // NOLINT: the tables alone
  constexpr char kFirst[] = "/messages/0/content/0";
  static const auto* const places = new std::vector<ObjectPlace>{
      {&kBody, With(""), ""},
      {&kMessage, With(""), "/messages/0"},
      {&kText, WithBlock("user", R"({"type":"text","text":"a"})"), kFirst},
      {&kText, WithBlock("assistant", R"({"type":"text","text":"a"})"), kFirst},
      {&kText, With(R"("system":[{"type":"text","text":"a"}],)"), "/system/0"},
      {&kDocument, WithBlock("user", R"({"type":"document","source":{"type":"text","data":"a"}})"),
       kFirst},
      {&kDocumentSource,
       WithBlock("user", R"({"type":"document","source":{"type":"text","data":"a"}})"),
       "/messages/0/content/0/source"},
      {&kToolResult, WithBlock("user", R"({"type":"tool_result","tool_use_id":"i"})"), kFirst},
      {&kText, WithBlock("user", R"({"type":"tool_result","tool_use_id":"i","content":[
                               {"type":"text","text":"a"}]})"),
       "/messages/0/content/0/content/0"},
      {&kToolReference,
       With(R"("tools":[{"name":"f","input_schema":{"type":"object"}}],)",
            absl::StrCat(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"i",
                             "content":[{"type":"tool_reference","tool_name":"f"}]}]},)",
                         kUser)),
       "/messages/0/content/0/content/0"},
      {&kToolUse,
       WithBlock("assistant", R"({"type":"tool_use","id":"i","name":"f","input":{"a":1}})"),
       kFirst},
      {&kThinking, WithBlock("assistant", R"({"type":"thinking","thinking":"a"})"), kFirst},
      {&kRedactedThinking, WithBlock("assistant", R"({"type":"redacted_thinking"})"), kFirst},
      {&kTool, With(R"("tools":[{"name":"f","input_schema":{"type":"object"}}],)"), "/tools/0"},
      {&kChoice, WithChoice(R"({"type":"auto"})"), "/tool_choice"},
      {&kChoice, WithChoice(R"({"type":"none"})"), "/tool_choice"},
      {&kChoice, WithChoice(R"({"type":"any"})"), "/tool_choice"},
      {&kToolByName, WithChoice(R"({"type":"tool","name":"f"})"), "/tool_choice"},
      {&kThinkingConfig, With(R"("thinking":{"type":"enabled"},)"), "/thinking"},
      {&kThinkingConfig, With(R"("thinking":{"type":"disabled"},)"), "/thinking"},
      {&kOutputConfig, With(R"("output_config":{},)"), "/output_config"},
      {&kTextFormat, With(R"("output_format":{"type":"text"},)"), "/output_format"},
      {&kSchemaFormat,
       With(R"("output_format":{"type":"json_schema","schema":{"type":"object"}},)"),
       "/output_format"},
      {&kSchemaFormat,
       With(R"("output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}},)"),
       "/output_config/format"},
  };
  return *places;
}

TEST(MessagesMembersTest, EachMemberDoesWhatItsRowSays) {
  std::vector<const ObjectMembers*> objects(messages::Objects().begin(), messages::Objects().end());
  std::erase(objects, &messages::kCountBody);
  CheckObjects(objects, Places(), [](const std::string& body) -> absl::StatusOr<std::string> {
    const absl::StatusOr<MessagesCall> call = ParseMessages(body);
    if (!call.ok()) return call.status();
    return absl::StrCat(call->request.SerializeAsString(), call->stream, call->shows_thinking,
                        call->tools.skipped.size());
  });
}

TEST(MessagesMembersTest, TokensAreCountedOfTheSameMembers) {
  std::vector<ObjectPlace> places = Places();
  for (ObjectPlace& place : places) {
    if (place.object == &messages::kBody) place.object = &messages::kCountBody;
    Json body = Json::parse(place.body);
    body.erase("max_tokens");
    place.body = body.dump();
  }
  std::vector<const ObjectMembers*> objects(messages::Objects().begin(), messages::Objects().end());
  std::erase(objects, &messages::kBody);
  CheckObjects(objects, places, [](const std::string& body) -> absl::StatusOr<std::string> {
    const absl::StatusOr<CountTokensCall> call = ParseCountTokens(body);
    if (!call.ok()) return call.status();
    return absl::StrCat(call->request.SerializeAsString(), call->tools.skipped.size());
  });
}

TEST(MessagesMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("messages", ObjectsTable(messages::Objects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
