// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::OpenTestModel;
using testing::ReadFile;
using testing::SourcePath;

std::string Tokenizer() {
  return ReadFile(SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
}

absl::StatusOr<std::unique_ptr<TextModel>> WithTemplate(const std::string& chat_template) {
  return testing::OpenText({.tokenizer_json = Tokenizer(), .chat_template = chat_template});
}

absl::StatusOr<std::string> Render(const std::string& chat_template, const ChatPrompt& prompt) {
  auto model = WithTemplate(chat_template);
  if (!model.ok()) return model.status();
  return (*model)->RenderChat(prompt);
}

const ChatPrompt kHello = {.messages = {{.role = "user", .content = "hello"}}};

TEST(ChatTemplateTest, RendersMessagesAndGenerationPrompt) {
  const auto model = OpenTestModel("byte_level");
  EXPECT_TRUE(model->has_chat_template());
  EXPECT_EQ(model->RenderChat(kHello).value(), "<|user|>hello<|end|><|assistant|>");
}

TEST(ChatTemplateTest, TheTemplateSeesOptionalFieldsWhereTheyAreNotEmpty) {
  const auto model = OpenTestModel("byte_level");
  const ChatPrompt prompt = {.messages = {{.role = "assistant",
                                           .content = "x",
                                           .reasoning = "r",
                                           .tool_call_id = "7",
                                           .name = "n"}}};
  EXPECT_EQ(model->RenderChat(prompt).value(), "<|assistant|><think>r(n)#7x<|end|><|assistant|>");
}

TEST(ChatTemplateTest, WithoutATemplateAConversationIsRefused) {
  const auto model = OpenTestModel("byte_fallback");
  EXPECT_FALSE(model->has_chat_template());
  EXPECT_EQ(model->RenderChat(kHello).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ChatTemplateTest, WhatTheTemplateRaisesIsTheMessage) {
  const auto model = OpenTestModel("byte_level");
  const auto rendered = model->RenderChat({.messages = {{.role = "wizard", .content = "x"}}});
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("no role wizard"));
}

TEST(ChatTemplateTest, TheClockTellsTheTimeOfThePrompt) {
  const auto model = OpenTestModel("byte_level");
  ChatPrompt prompt = {.messages = {},
                       .template_arguments = R"({"date": "%Y-%m-%d %H:%M"})",
                       .continue_final_message = false,
                       .now_seconds = 1752105661};
  EXPECT_EQ(model->RenderChat(prompt).value(), "2025-07-10 00:01<|assistant|>");
  prompt.now_seconds = INT64_MAX;
  EXPECT_EQ(model->RenderChat(prompt).status().code(), absl::StatusCode::kInvalidArgument);
  prompt.now_seconds = 0;
  prompt.template_arguments = R"({"date": "%"})";
  EXPECT_EQ(model->RenderChat(prompt).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, ArgumentsAreVariablesOfTheTemplate) {
  ChatPrompt prompt = kHello;
  prompt.template_arguments = R"({"thinking": false, "bos_token": "B", "deep": {"x": [1, 2.5]}})";
  EXPECT_EQ(Render("{{ thinking }} {{ bos_token }} {{ deep.x[1] }}", prompt).value(),
            "False B 2.5");
}

TEST(ChatTemplateTest, ArgumentsThatAreNoObjectOrSetWhatIsNotTheirsAreRefused) {
  const std::string deep = absl::StrCat(R"({"a":)", std::string(100000, '['));
  for (const std::string bad : {"[]", "3", "{", "null", R"({"messages": []})", R"({"tools": 1})",
                                R"({"raise_exception": 1})", "{\"\xFF\": 1}", deep.c_str()}) {
    ChatPrompt prompt = kHello;
    prompt.template_arguments = bad;
    EXPECT_EQ(Render("x", prompt).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ChatTemplateTest, MessagesThatAreNotUtf8AreRefusedByName) {
  for (const ChatMessage& message :
       {ChatMessage{.role = "\xFF"}, ChatMessage{.content = "\xFF"}, ChatMessage{.name = "\xFF"}}) {
    const auto rendered = Render("x", {.messages = {{}, message}});
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(rendered.status().message()), HasSubstr("messages[1]"));
  }
}

TEST(ChatTemplateTest, AFinalMessageIsContinuedWhereItsContentEnds) {
  const auto model = OpenTestModel("byte_level");
  const ChatPrompt prompt = {
      .messages = {{.role = "user", .content = "say he"}, {.role = "assistant", .content = "he "}},
      .template_arguments = "",
      .continue_final_message = true};
  EXPECT_EQ(model->RenderChat(prompt).value(), "<|user|>say he<|end|><|assistant|>he ");
  // The template trims its values: the space is gone, and the answer goes on after "he".
  EXPECT_EQ(Render("{{ messages[-1].content|trim }}END", prompt).value(), "he");
  // This template does not show the final message.
  EXPECT_EQ(Render("END", prompt).status().code(), absl::StatusCode::kInvalidArgument);
  ChatPrompt empty = prompt;
  empty.messages.clear();
  EXPECT_EQ(Render("END", empty).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, RenderingIsBoundedInStepsBytesAndDepth) {
  const std::string steps =
      "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
  EXPECT_THAT(std::string(Render(steps, kHello).status().message()), HasSubstr("steps"));
  const std::string bytes = "{% set x = 'x' * 9999 %}{% for a in range(9999) %}{{ x }}{% endfor %}";
  EXPECT_THAT(std::string(Render(bytes, kHello).status().message()), HasSubstr("bytes"));
  const std::string depth = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
  EXPECT_EQ(Render(depth, kHello).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string nested =
      "{% set n = namespace(x=[]) %}{% for i in range(5000) %}"
      "{% set n.x = [n.x] %}{% endfor %}";
  EXPECT_EQ(Render(nested + "{{ n.x }}", kHello).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Render(nested + "{{ n.x|tojson }}", kHello).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, WhatOneFilterOrMethodMakesIsBounded) {
  const std::string x = "{% set x = 'x' * 99999 %}{% set y = [x] * 999 %}";
  for (const char* expression : {"x|join(x)",
                                 "y|join(', ')",
                                 "','.join(y)",
                                 "[[y]]|join(',')",
                                 "x|replace('x', x)",
                                 "x|replace('', x)",
                                 "x.replace('x', x)",
                                 "x.replace('x', x, 9999)",
                                 "x|indent(99999999)",
                                 "('\n' * 9999)|indent(width=9999, blank=true)",
                                 "'a'|indent(999999999999999)",
                                 "'%9999999999999d'|format(1)",
                                 "'%-09999999999999d'|format(1)",
                                 "'%.99999999f'|format(1.5)",
                                 "('{0:999999}' * 999).format(1)",
                                 "('%999999d' * 999)|format(*[1] * 999)",
                                 "('{0}' * 99999).format(x)",
                                 "('%s' * 999)|format(*y)",
                                 "'{:>9999999999}'.format(1)",
                                 "'{0:*>9999999999.2f}'.format(1.5)"}) {
    const std::string whole = x + "{% set z = " + expression + " %}";
    const absl::Status status = Render(whole, kHello).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(std::string(status.message()), HasSubstr("bytes")) << expression;
  }
  for (const char* expression :
       {"[1]|batch(9999999999999, 0)|list", "[1]|slice(9999999999999)|list",
        "([1] * 9999999999)|list", "([1] * 9999999999)|join", "''.join([''] * 9999999999)",
        "([1] * 9999999999)|batch(2)"}) {
    const std::string whole = std::string("{% set z = ") + expression + " %}";
    const absl::Status status = Render(whole, kHello).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(std::string(status.message()), HasSubstr("items")) << expression;
  }
  // Results below the bounds are unchanged.
  for (const auto& [expression, expected] : std::vector<std::pair<std::string, std::string>>{
           {"[1, 'a', none]|join('-')", "1-a-None"},
           {"'-'.join(['a', 'b'])", "a-b"},
           {"'abc'|join", "abc"},
           {"'aXa'|replace('a', 'bc')", "bcXbc"},
           {"'aXa'.replace('a', 'bc', 1)", "bcXa"},
           {"'a\nb'|indent(2)", "a\n  b"},
           {"'a'|indent(width=2, first=true)", "  a"},
           {"'%05d 12345678'|format(7)", "00007 12345678"},
           {"'{:>3}, 12345678'.format(7)", "  7, 12345678"},
           {"'{\"id\": 12345678, \"n\": \"%s\"}'|format(1)", "{\"id\": 12345678, \"n\": \"1\"}"},
           {"'100%% 123456789 %s'|format('x')", "100% 123456789 x"},
           {"'{{123456789}} {}'.format(1)", "{123456789} 1"},
           {"'5% 123456789 {}'.format(1)", "5% 123456789 1"},
           {"[1, 2, 3]|batch(2)|list", "[[1, 2], [3]]"},
           {"[1, 2, 3]|slice(2)|list", "[[1, 2], [3]]"},
           {"'abc'|list", "['a', 'b', 'c']"},
           {"'«%s» é 123456789'|format('x')", "«x» é 123456789"}}) {
    std::string text = expected;
    if (const size_t at = text.find("\\n"); at != std::string::npos) text.replace(at, 2, "\n");
    EXPECT_EQ(Render("{{ " + expression + " }}", kHello).value(), text) << expression;
  }
}

TEST(ChatTemplateTest, ValuesAreNestedToADepthThatIsBounded) {
  const std::string nested =
      "{% set n = namespace(x=[]) %}{% for a in range(99) %}"
      "{% for i in range(99999) %}{% set n.x = [n.x] %}{% endfor %}"
      "{% endfor %}";
  EXPECT_THAT(std::string(Render(nested, kHello).status().message()), HasSubstr("deep"));
}

// AddressSanitizer's build finds leaks by itself.
TEST(ChatTemplateTest, NamespacesThatHoldOneAnotherLeaveNothingBehind) {
  const auto model = WithTemplate(
      "{% set a = namespace(k='a') %}{% set b = namespace(a=a) %}{% set a.b = [b] %}"
      "{% set a.self = a %}{% set (c, d) = (namespace(), 1) %}{% set c.in = c %}{{ a.k }}");
  ASSERT_TRUE(model.ok()) << model.status();
  const auto render = [&](int times) {
    for (int i = 0; i < times; ++i) EXPECT_EQ((*model)->RenderChat(kHello).value(), "a");
    return mallinfo2().uordblks;
  };
  const size_t before = render(100);
  EXPECT_LT(render(1000), before + 100'000);  // each left 500 bytes and more
}

TEST(ChatTemplateTest, NamespacesAreBounded) {
  const std::string many =
      "{% for a in range(3000) %}{% for b in range(1000) %}"
      "{% set n = namespace() %}{% set n.x = n %}{% endfor %}{% endfor %}";
  EXPECT_EQ(Render(many, kHello).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Render("{{ namespace(1) }}", kHello).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateTest, ATemplateThatIsNoneIsRefusedWhenTheModelIsOpened) {
  for (const std::string bad :
       {"{% if %}", "{{", "{% endfor %}", "{{ 'a' ", "\xFF", "{% for x in %}{% endfor %}"}) {
    const auto model = WithTemplate(bad);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(model.status().message()), HasSubstr("chat template")) << bad;
  }
  EXPECT_FALSE(WithTemplate(std::string(100000, '(').insert(0, "{{ ")).ok());
  EXPECT_FALSE(WithTemplate(std::string((1 << 20) + 1, 'x')).ok());
}

// Python's behaviour that templates rely on; tests/worker/text/jinja2 compares many more with
// Jinja2 itself.
TEST(ChatTemplateTest, ValuesBehaveAsInPython) {
  const std::pair<std::string, std::string> cases[] = {
      {"{{ none }} {{ true }} {{ 1.0 }} {{ 1e20 }} {{ 0.00001 }}", "None True 1.0 1e+20 1e-05"},
      {"{{ ['a', 1, none, {'x': \"it's\"}] }}", "['a', 1, None, {'x': \"it's\"}]"},
      {"{{ {'b': 1, 'a': [1, 'é<']}|tojson }}", "{\"b\": 1, \"a\": [1, \"é<\"]}"},
      {"{{ {'a': [1, {}]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ]\n}"},
      {"{{ 'é😀'|tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\ude00\""},
      {"{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":2,\"b\":1}"},
      {"{{ none is iterable }}{{ [] is iterable }}", "FalseTrue"},
      {"{% if []|select %}generators are true{% endif %}", "generators are true"},
      {"{% generation %}x{% endgeneration %}{%- generation -%} y {%- endgeneration %}", "xy"},
      {"{% raw %}{% generation %}{% endraw %}", "{% generation %}"},
      {"{% for x in [3, 1] if x > 1 %}{{ x }}{% endfor %}", "3"},
      {"{% for x in [1] + [2] %}{{ x }}{% endfor %}", "12"},
      {"{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"},
      {"  {% if true %}\n  x\n  {% endif %}\ny\n", "  x\ny"},
      {"{{ ' a b '.strip().split(' ') }}", "['a', 'b']"},
      {"{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}", "bcab"},
      {"{{ 'a/b/c'.rsplit('/', 1) }}{{ 'a/b/c'.rsplit('/') }}", "['a/b', 'c']['a', 'b', 'c']"},
      {"{{ 'a/b/c'.partition('/')|join(',') }}{{ 'abc'.rpartition('/')|join(',') }}",
       "a,/,b/c,,abc"},
      {"{{ messages[0].content[::-1] }}", "olleh"},
      {"{{ messages[0].tool_calls|length }}{{ messages[0].zz|first }}", "0"},
      // Two shortest texts are equally near; Python takes the even one.
      {"{{ 1379310344827586.25 }} {{ 0.1 + 0.2 }}", "1379310344827586.2 0.30000000000000004"},
      {"{{ 'x'|int }}{{ 'x'|int(7) }}{{ 2.5|round }}{{ '42.9'|int }}", "072.042"},
      {"{{ '%05.1f|%-4s|%x' % (3.14159, 'a', 255) }}", "003.1|a   |ff"},
      {"{{ (1, 'a') }}{{ (1,) }}{{ 7 // -2 }}{{ -7 % 3 }}{{ 1 / 2 }}", "(1, 'a')(1,)-420.5"},
      {"{{ messages[0] }}", "{'role': 'user', 'content': 'hello'}"},
      {"{{ messages[0]|tojson }}", "{\"role\": \"user\", \"content\": \"hello\"}"},
      {"{{ '<'|safe + '\"' }}", "<&#34;"},
      {"{{ tools is none }}{{ documents is none }}{{ custom is defined }}", "TrueTrueFalse"},
  };
  for (const auto& [chat_template, expected] : cases) {
    EXPECT_EQ(Render(chat_template, kHello).value_or("error"), expected) << chat_template;
  }
  for (const std::string refused :
       {"{% for x in none %}{% endfor %}", "{{ undefined.x }}", "{{ undefined|tojson }}",
        "{{ ([1]|map('string'))|tojson }}", "{{ 'a' + 1 }}", "{% include 'x' %}", "{{ nofunc() }}",
        "{{ 1 / 0 }}", "{{ 1 < 'a' }}", "{{ [].append(1) }}", "{{ ''.__class__.x }}"}) {
    EXPECT_EQ(Render(refused, kHello).status().code(), absl::StatusCode::kInvalidArgument)
        << refused;
  }
}

TEST(ChatTemplateTest, WhatIsNotSupportedIsRefusedByItsName) {
  for (const auto& [expression, name] : std::vector<std::pair<std::string, std::string>>{
           {"messages|pprint", "the filter pprint"},
           {"2 ** 200", "an integer of more than 128 bits"},
           {"messages|map('string')", "printing an iterator"}}) {
    const auto rendered = Render("{{ " + expression + " }}", kHello);
    EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument) << expression;
    EXPECT_THAT(std::string(rendered.status().message()), HasSubstr(name)) << expression;
  }
  EXPECT_THAT(
      std::string(WithTemplate("{% autoescape true %}x{% endautoescape %}").status().message()),
      HasSubstr("the statement autoescape"));
  ChatPrompt prompt = kHello;
  prompt.template_arguments = R"({"n": 123456789012345678901})";
  EXPECT_THAT(std::string(Render("x", prompt).status().message()), HasSubstr("64 bits"));
}

// As DeepSeek V3.2's template does: a look at tool calls that are not there.
TEST(ChatTemplateTest, UndefinedMembersAreEmptyUnderFilters) {
  const std::string calls =
      "{% set ns = namespace(last=none, count=0) %}{% for m in messages %}"
      "{% if m['role'] == 'assistant' and m['tool_calls'] is defined and m['tool_calls'] is not "
      "none %}"
      "{% set ns.count = m['tool_calls']|length %}{% endif %}"
      "{% if m.tool_calls|length == 0 %}<{{ m.role }}>{{ m.content }}{% endif %}"
      "{% for call in m.tool_calls|default([], true) %}{{ call }}{% endfor %}"
      "{%- endfor %}{{ ns.count }}{{ (messages|last).zz|first }}";
  EXPECT_EQ(Render(calls, {.messages = {{.role = "user", .content = "a"},
                                        {.role = "assistant", .content = "b"},
                                        {.role = "tool", .content = "c"},
                                        {.role = "user", .content = "d"}}})
                .value(),
            "<user>a<assistant>b<tool>c<user>d0");
}

// A template may be in either of three files; the first that exists counts.
TEST(ChatTemplateTest, TheTemplateFileGoesBeforeItsJsonAndTheConfiguration) {
  const testing::TempFolder folder;
  const std::filesystem::path& dir = folder.path();
  std::ofstream(dir / "tokenizer.json") << Tokenizer();
  const auto render = [&] {
    return TextModel::Open(dir.string()).value()->RenderChat(kHello).value();
  };
  std::ofstream(dir / "tokenizer_config.json") << json{{"chat_template", "config"}};
  EXPECT_EQ(render(), "config");
  std::ofstream(dir / "chat_template.json") << json{{"chat_template", "json"}};
  EXPECT_EQ(render(), "json");
  std::ofstream(dir / "chat_template.jinja") << "jinja";
  EXPECT_EQ(render(), "jinja");
}

TEST(ChatTemplateTest, SpecialTokensComeFromEitherFileAsTextOrObject) {
  const auto model = testing::OpenText(
      {.tokenizer_json = Tokenizer(),
       .tokenizer_config_json = R"({"bos_token": "B", "eos_token": null})",
       .special_tokens_map_json =
           R"({"bos_token": "other", "eos_token": {"content": "E"}, "additional_special_tokens": ["x", {"content": "y"}]})",
       .chat_template = "{{ bos_token }}{{ eos_token }}{{ additional_special_tokens[1] }}"
                        "{{ pad_token is defined }}"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->RenderChat(kHello).value(), "BEyFalse");
}

}  // namespace
}  // namespace continuo::text
