// SPDX-License-Identifier: Apache-2.0
// A message's content has the form that the template shows.
#include <gmock/gmock.h>

#include <string>

#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<TextModel>> WithTemplate(const std::string& chat_template) {
  const std::string file = "tests/worker/text/testdata/byte_level/tokenizer.json";
  const std::string tokenizer = testing::ReadFile(testing::SourcePath(file));
  return testing::OpenText({.tokenizer_json = tokenizer, .chat_template = chat_template});
}

absl::StatusOr<std::string> Render(const std::string& chat_template, const ChatPrompt& prompt) {
  auto model = WithTemplate(chat_template);
  if (!model.ok()) return model.status();
  return (*model)->RenderChat(prompt);
}

// A content is a string here; a template that loops over parts gets a part.
TEST(ContentFormTest, ATemplateThatLoopsOverPartsGetsParts) {
  const std::string parts =
      "{% for m in messages %}{{ m.role }}:"
      "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %};{% "
      "endfor %}";
  const ChatPrompt prompt = {.messages = {{.role = "system", .content = "be brief"},
                                          {.role = "user", .content = "a"},
                                          {.role = "assistant", .content = "b"},
                                          {.role = "tool", .content = "c"}}};
  EXPECT_EQ(Render(parts, prompt).value(), "system:be brief;user:a;assistant:b;tool:c;");
  // The system message as a string, the others as parts.
  const std::string both =
      "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '!' }}{% else %}"
      "{% for c in m.content %}{{ c['text'] }}{% endfor %}{% endif %}{% endfor %}";
  EXPECT_EQ(Render(both, prompt).value(), "be brief!abc");
  // Either form: the string stays.
  const std::string either =
      "{% for m in messages %}{% if m.content is string %}s{{ m.content }}{% else %}p{% endif %}"
      "{% endfor %}";
  EXPECT_EQ(Render(either, prompt).value(), "sbe briefsasbsc");
}

// A template that takes parts gets those that the client sent, another one gets their lines.
TEST(ContentFormTest, PartsStayApartWhereTheTemplateTakesParts) {
  const ChatPrompt prompt = {
      .messages = {{.role = "user", .parts = {"capital of ", " France?"}},
                   {.role = "assistant", .content = "Paris"},
                   {.role = "user", .parts = {"and", "of <|user|>", "Spain?"}}}};
  const std::string each = "{% for m in messages %}", end = "{% endfor %}";
  EXPECT_EQ(Render(each + "<{{ m.content }}>" + end, prompt).value(),
            "<capital of \n France?><Paris><and\nof <|user|>\nSpain?>");
  EXPECT_EQ(
      Render(each + "{% for c in m.content %}[{{ c.text }}]{% endfor %}" + end, prompt).value(),
      "[capital of ][ France?][Paris][and][of <|user|>][Spain?]");
  // As Gemma 3's: a string as it is, parts one by one.
  EXPECT_EQ(Render(each +
                       "{% if m.content is string %}{{ m.content | trim }}{% else %}"
                       "{% for c in m.content %}{{ c.text | trim }}{% endfor %}{% endif %};" +
                       end,
                   prompt)
                .value(),
            "capital ofFrance?;Paris;andof <|user|>Spain?;");
  ChatPrompt continued = {
      .messages = {{.role = "user", .content = "a"}, {.role = "assistant", .parts = {"b", "c"}}},
      .continue_final_message = true};
  EXPECT_EQ(Render(each + "<{{ m.content }}>" + end, continued).value(), "<a><b\nc");
  ChatPrompt wrong = {.messages = {{.role = "user", .parts = {"a", "\xff"}}}};
  EXPECT_FALSE(Render(each + "{{ m.content }}" + end, wrong).ok());
}

TEST(ContentFormTest, SyntaxTellsTheFormThatNoTrialShows) {
  const std::string each = "{% for m in messages %}";
  const std::string end = "{% endfor %}";
  const std::string loop = "{% for c in m.content %}{{ c.text }}{% endfor %}";
  const ChatPrompt user = {.messages = {{.role = "user", .content = "hello"}}};
  const ChatPrompt human = {.messages = {{.role = "human", .content = "hello"}}};
  const ChatPrompt turns = {.messages = {{.role = "user", .content = "a"},
                                         {.role = "assistant", .content = "B"},
                                         {.role = "user", .content = "c"}}};
  ChatPrompt tools = user;
  tools.tools = {{.name = "f", .description = "F."}};
  ChatPrompt argument = user;
  argument.template_arguments = R"({"go": 7})";
  struct Case {
    std::string chat_template;
    ChatPrompt prompt;
    const char* expected;
  };
  const Case cases[] = {
      // Changed texts.
      {each + "{% for c in m.content %}{{ c.text|upper }}{% endfor %}" + end, user, "HELLO"},
      {each + "{% for c in m.content %}{{ c.text[:3] }}{% endfor %}" + end, user, "hel"},
      {each + "{% for c in m.content %}{{ c.text|list|join('-') }}{% endfor %}" + end, user,
       "h-e-l-l-o"},
      {each + "{{ m.content[0].text|reverse }}" + end, user, "olleh"},
      {each + "{{ (m.content|first).text|title }}" + end, user, "Hello"},
      {each + "{{ m.content|map(attribute='text')|join|upper }}" + end, user, "HELLO"},
      {each + "{{ m.content|selectattr('type', 'equalto', 'text')|map(attribute='text')|join }}" +
           end,
       user, "hello"},
      {each + "{{ m.content|upper }}" + end, user, "HELLO"},
      {each + "{{ m.content[:3] }}" + end, user, "hel"},
      // Conditions.
      {"{% if not tools %}{{ raise_exception('tools') }}{% endif %}" + each + loop + end, tools,
       "hello"},
      {"{% if tools %}" + each + loop + end + "{% endif %}", tools, "hello"},
      {"{% if go != 7 %}{{ raise_exception('go') }}{% endif %}" + each + loop + end, argument,
       "hello"},
      {"{% if go == 7 %}" + each + "{% for c in m['content']|list %}{{ c['text'] }}{% endfor %}" +
           end + "{% endif %}",
       argument, "hello"},
      {"{% if go == 7 %}" + each + "{% set t = m.get('content') %}{{ t[0]['text'] }}" + end +
           "{% endif %}",
       argument, "hello"},
      {"{% macro show(t) %}{% for c in t %}{{ c.text }}{% endfor %}{% endmacro %}{% if go == 7 %}" +
           each + "{{ show(m.content) }}" + end + "{% endif %}",
       argument, "hello"},
      {"{% if go == 7 %}" + each + "{{ m.content }}" + end + "{% endif %}", argument, "hello"},
      {"{% if go == 7 %}" + each + "{% for l in m.content.split('l') %}{{ l }},{% endfor %}" + end +
           "{% endif %}",
       argument, "he,,o,"},
      {"{% if go == 7 %}" + each + "{% if m.content is string %}{{ m.content }}{% else %}" + loop +
           "{% endif %}" + end + "{% endif %}",
       argument, "hello"},
      // Roles.
      {each + "{% if m.role == 'human' %}" + loop + "{% endif %}" + end, human, "hello"},
      {each + "{% if m.role in ['human', 'user'] %}" + loop + "{% endif %}" + end, human, "hello"},
      {each + "{% if m.role == 'human' and go == 7 %}" + loop +
           "{% else %}{{ m.content }}{% endif %}" + end,
       user, "hello"},
      {each + "{% if m.role == 'assistant' %}" + loop + "{% else %}{{ m.content }}{% endif %}" +
           end,
       turns, "aBc"},
      {each + "{% if m.role != 'assistant' %}" + loop + "{% else %}{{ m.content }}{% endif %}" +
           end,
       turns, "aBc"},
      {"{% if not tools %}{{ raise_exception('tools') }}{% endif %}" + each +
           "{% if m.role == 'user' %}" + loop + "{% else %}{{ m.content }}{% endif %}" + end,
       tools, "hello"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.chat_template);
    EXPECT_EQ(Render(c.chat_template, c.prompt).value_or("refused"), c.expected);
    // A request's own template goes the same way.
    ChatPrompt own = c.prompt;
    own.chat_template = c.chat_template;
    EXPECT_EQ(Render("x", own).value_or("refused"), c.expected);
  }
}

TEST(ContentFormTest, ATemplateThatLosesMessagesIsAWarning) {
  struct Case {
    const char* chat_template;
    const char* warning;  // null: none
  };
  const Case cases[] = {
      {"{% for m in messages %}{{ m.content }}{% endfor %}", nullptr},
      {"{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}",
       nullptr},
      {"{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
       "{{ m.content }}{% endfor %}",
       nullptr},
      {"hello", "shows nothing of the content of messages, as text and as parts, of: user"},
      {"{% for m in messages %}{% if m.role == 'human' %}{{ m.content }}{% endif %}{% endfor %}",
       "of: user, system, assistant"},
      {"{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}",
       "of: system"},
      {"{{ raise_exception('no') }}", "refuses all conversations that were tried"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.chat_template);
    const auto model = WithTemplate(c.chat_template);
    ASSERT_TRUE(model.ok()) << model.status();
    if (c.warning == nullptr) {
      EXPECT_THAT((*model)->warnings(), ::testing::IsEmpty());
    } else {
      EXPECT_THAT((*model)->warnings(), ::testing::ElementsAre(HasSubstr(c.warning)));
    }
  }
}

}  // namespace
}  // namespace continuo::text
