// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_members.h"

#include <gtest/gtest.h>

#include <string>

#include "services/gateway/openai/json/tool_choice_json.h"
#include "services/gateway/openai/responses/responses_request.h"
#include "tests/gateway/openai/object_members.h"

namespace continuo::gateway::openai {
namespace {

std::string With(const std::string& members) {
  return absl::StrCat(R"({"input":"x",)", members, "}");
}
std::string WithItem(const std::string& item) {
  return absl::StrCat(R"({"input":[)", item, R"(,{"role":"user","content":"x"}]})");
}
std::string WithPart(const std::string& part) {
  return WithItem(absl::StrCat(R"({"role":"assistant","content":[)", part, "]}"));
}
std::string WithChoice(const std::string& choice) {
  return With(absl::StrCat(R"("tools":[{"type":"function","name":"f"}],"tool_choice":)", choice));
}

const std::vector<ObjectPlace>& Places() {
  using namespace responses;  // NOLINT: the tables alone
  constexpr char kFirst[] = "/input/0/content/0";
  constexpr char kAllowed[] =
      R"({"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]})";
  static const auto* const places = new std::vector<ObjectPlace>{
      {&kBody, R"({"input":"x"})", ""},
      {&kMessage, WithItem(R"({"role":"user","content":"a"})"), "/input/0"},
      {&kMessage, WithItem(R"({"type":"message","role":"assistant","content":"a"})"), "/input/0"},
      {&kFunctionCall,
       WithItem(R"({"type":"function_call","call_id":"i","name":"f","arguments":"{}"})"),
       "/input/0"},
      {&kFunctionCallOutput,
       WithItem(R"({"type":"function_call_output","call_id":"i","output":"a"})"), "/input/0"},
      {&kReasoning, WithItem(R"({"type":"reasoning"})"), "/input/0"},
      {&kTextPart, WithPart(R"({"type":"output_text","text":"a"})"), kFirst},
      {&kTextPart, WithPart(R"({"type":"input_text","text":"a"})"), kFirst},
      {&kTextPart,
       WithItem(R"({"type":"reasoning","summary":[{"type":"summary_text","text":"a"}]})"),
       "/input/0/summary/0"},
      {&kTextPart, WithItem(R"({"type":"function_call_output","call_id":"i","output":[
                      {"type":"input_text","text":"a"}]})"),
       "/input/0/output/0"},
      {&kRefusalPart, WithPart(R"({"type":"refusal","refusal":"a"})"), kFirst},
      {&kFunction, With(R"("tools":[{"type":"function","name":"f"}])"), "/tools/0"},
      {&kNamedChoice, WithChoice(R"({"type":"function","name":"f"})"), "/tool_choice"},
      {&kAllowedChoice, WithChoice(kAllowed), "/tool_choice"},
      {&kAllowedTool, WithChoice(kAllowed), "/tool_choice/tools/0"},
      {&kStreamOptions, With(R"("stream_options":{})"), "/stream_options"},
      {&kReasoningConfig, With(R"("reasoning":{})"), "/reasoning"},
      {&kText, With(R"("text":{})"), "/text"},
      {&kPlainFormat, With(R"("text":{"format":{"type":"text"}})"), "/text/format"},
      {&kPlainFormat, With(R"("text":{"format":{"type":"json_object"}})"), "/text/format"},
      {&kSchemaFormat,
       With(R"("text":{"format":{"type":"json_schema","schema":{"type":"object"}}})"),
       "/text/format"},
  };
  return *places;
}

TEST(ResponsesMembersTest, EachMemberDoesWhatItsRowSays) {
  CheckObjects(responses::Objects(), Places(),
               [](const std::string& body) -> absl::StatusOr<std::string> {
                 const absl::StatusOr<ResponsesCall> call = ParseResponses(body);
                 if (!call.ok()) return call.status();
                 return absl::StrCat(call->request.SerializeAsString(), call->form.stream,
                                     call->form.encodes_reasoning);
               });
}

TEST(ResponsesMembersTest, TheDocumentsHaveTheTable) {
  CheckDocuments("responses", ObjectsTable(responses::Objects()));
}

}  // namespace
}  // namespace continuo::gateway::openai
