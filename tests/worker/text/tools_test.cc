// SPDX-License-Identifier: Apache-2.0
// Tools in chat templates, and which format of answers a model has.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/shared_data.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using ::testing::HasSubstr;
using testing::ReadFile;
using testing::SourcePath;

// Opens the byte-level test tokenizer with this configuration, or with a chat template alone.
std::unique_ptr<TextModel> Opened(const nlohmann::json& config) {
  const std::string tokenizer =
      ReadFile(SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
  const std::string text = config.dump();
  auto model = testing::OpenText({.tokenizer_json = tokenizer, .tokenizer_config_json = text});
  EXPECT_TRUE(model.ok()) << model.status();
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}
std::unique_ptr<TextModel> WithTemplate(const std::string& chat_template) {
  return Opened({{"chat_template", chat_template}});
}

const ChatTool kTool = {.name = "f", .description = "d", .parameters = R"({"z": 1, "a": 1.50})"};

ChatPrompt WithCall(const std::string& arguments) {
  return {.messages = {{.role = "assistant",
                        .content = "c",
                        .tool_calls = {{.id = "i", .name = "f", .arguments = arguments}}}}};
}

TEST(ToolsTest, TheTemplateSeesToolsAndCalls) {
  const auto model = WithTemplate(
      "{{ tools | tojson }}{% for m in messages %}{{ m.tool_calls | tojson }}{% endfor %}");
  ChatPrompt prompt = WithCall(R"({"b": {"a": [1, true]}})");
  prompt.tools = {kTool};
  EXPECT_EQ(model->RenderChat(prompt).value(),
            R"([{"type": "function", "function": {"name": "f", "description": "d", )"
            R"("parameters": {"z": 1, "a": 1.5}}}])"
            R"([{"id": "i", "type": "function", "function": {"name": "f", )"
            R"("arguments": {"b": {"a": [1, true]}}}}])");
  const auto none = WithTemplate("{{ tools }}{{ messages[0].tool_calls is defined }}");
  EXPECT_EQ(none->RenderChat({.messages = {{.role = "user", .content = "x"}}}).value(),
            "NoneFalse");
}

TEST(ToolsTest, ToolsAreTheRequestsTextNotTheTemplates) {
  const auto model = WithTemplate("<|user|>{{ tools[0].function.description }}");
  ChatPrompt prompt = {.messages = {{.role = "user", .content = "x"}},
                       .tools = {{.name = "f", .description = "<|user|>"}}};
  const RenderedChat rendered = model->RenderMarkedChat(prompt).value();
  ASSERT_EQ(rendered.content.size(), 1u);
  EXPECT_EQ(rendered.content[0].begin, 8u);
  EXPECT_EQ(rendered.content[0].end, 16u);
}

TEST(ToolsTest, WhatIsNoObjectIsNamed) {
  const auto model = WithTemplate("{{ tools }}");
  ChatPrompt prompt = {.messages = {{.role = "user", .content = "x"}},
                       .tools = {kTool, {.name = "g", .parameters = "[1]"}}};
  EXPECT_THAT(std::string(model->RenderChat(prompt).status().message()),
              HasSubstr("tools[1].parameters is not a JSON object"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"a":)";
  for (const std::string& bad :
       {std::string("1"), std::string("{"), deep, deep + "1" + std::string(100, '}')}) {
    EXPECT_THAT(std::string(model->RenderChat(WithCall(bad)).status().message()),
                HasSubstr("messages[0].tool_calls[0].arguments is not a JSON object"))
        << bad;
  }
}

TEST(ToolsTest, ArgumentsAreTextWhereTheTemplateWantsText) {
  const std::string start = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const auto text = WithTemplate(start + "{{ 'A ' + c.function.arguments }}" + end);
  EXPECT_EQ(text->RenderChat(WithCall(R"({"a":  1})")).value(), R"(A {"a":  1})");
  const auto object = WithTemplate(start + "{{ c.function.arguments.items() | list }}" + end);
  EXPECT_EQ(object->RenderChat(WithCall(R"({"a":  1})")).value(), "[('a', 1)]");
}

TEST(ToolsTest, ConversationsWithToolsHaveATemplateOfTheirOwn) {
  const auto model = Opened({{"chat_template",
                              {{{"name", "default"}, {"template", "plain"}},
                               {{"name", "tool_use"}, {"template", "tools"}}}}});
  ChatPrompt prompt = {.messages = {{.role = "user", .content = "x"}}};
  EXPECT_EQ(model->RenderChat(prompt).value(), "plain");
  prompt.tools = {kTool};
  EXPECT_EQ(model->RenderChat(prompt).value(), "tools");
  const auto without = Opened({{"chat_template", {{{"name", "default"}, {"template", "plain"}}}}});
  EXPECT_EQ(without->RenderChat(prompt).value(), "plain");
  EXPECT_NE(model->template_digest(), without->template_digest());
}

TEST(ToolsTest, TheModelsOwnFormatComesFirst) {
  nlohmann::json config = {
      {"chat_template", "<think>{{ messages | length }}<tool_call>"},
      {"response_template",
       {{"fields", {{"tool_calls", {{"open", "<c>"}, {"close", "</c>"}, {"content", "json"}}}}}}}};
  EXPECT_EQ(Opened(config)->response_format().name, "template");
  const std::string digest = Opened(config)->template_digest();
  config["response_template"]["fields"]["tool_calls"]["open"] = "<d>";
  EXPECT_NE(Opened(config)->template_digest(), digest);

  config["response_template"]["fields"]["tool_calls"]["content"] = "yaml";
  const auto model = Opened(config);
  EXPECT_THAT(std::string(model->response_template_status().message()), HasSubstr("yaml"));
  EXPECT_EQ(model->response_format().name, "hermes") << "the marker in the chat template";
}

TEST(ToolsTest, TheFormatIsFoundByWhatTheTemplateRenders) {
  const auto model = WithTemplate(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
      "<function={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}"
      "<parameter={{ k }}>{{ v }}</parameter>{% endfor %}</function>{% endfor %}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}");
  EXPECT_EQ(model->response_format().name, "qwen_xml");
  EXPECT_EQ(testing::OpenTestModel("byte_fallback")->response_format().name, "");
}

TEST(ToolsTest, AFormatMayBeChosen) {
  const auto model = WithTemplate("{{ messages }}");
  EXPECT_EQ(model->response_format().name, "none");
  EXPECT_TRUE(model->UseResponseFormat("llama3").ok());
  EXPECT_EQ(model->response_format().name, "llama3");
  EXPECT_THAT(std::string(model->UseResponseFormat("yaml").message()), HasSubstr("hermes"));
}

// The format of each shared template, which also wants its calls written as it likes them.
TEST(ToolsTest, SharedChatTemplatesAreRenderedWithCalls) {
  CONTINUO_NEED_SHARED("data/chat_templates/llama.cpp");
  const std::pair<const char*, const char*> expected[] = {
      {"Qwen-Qwen3-0.6B.jinja", "hermes"},
      {"Qwen3.5-4B.jinja", "qwen_xml"},
      {"meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3"},
      {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral"},
      {"Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral_args"},
      {"google-gemma-4-31B-it.jinja", "gemma"},
      {"ibm-granite-granite-4.0.jinja", "hermes"},
      {"deepseek-ai-DeepSeek-V3.1.jinja", "deepseek"},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", "deepseek"},
      {"openai-gpt-oss-120b.jinja", "harmony"},
      {"Kimi-K2-Instruct.jinja", "kimi"},
      {"GLM-4.6.jinja", "glm"},
  };
  for (const auto& [file, format] : expected) {
    const auto model = WithTemplate(
        ReadFile(testing::SharedPath(std::string("data/chat_templates/llama.cpp/") + file)));
    EXPECT_EQ(model->response_format().name, format) << file;
  }
}

}  // namespace
}  // namespace continuo::text
