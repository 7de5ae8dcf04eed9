// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"

namespace continuo::text {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::OpenText;

// Words, white space, and tags that are found as a whole: `special` ones and `plain` ones.
std::string TokenizerJson(const std::vector<std::string>& special,
                          const std::vector<std::string>& plain = {}) {
  json added = json::array();
  const auto add = [&added](const std::string& content, bool is_special) {
    added.push_back({{"id", 3 + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", is_special}});
  };
  for (const std::string& content : special) add(content, true);
  for (const std::string& content : plain) add(content, false);
  return json{
      {"version", "1.0"},
      {"added_tokens", added},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", "\\n| "}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"model",
       {{"type", "WordLevel"}, {"vocab", {{"?", 0}, {"\n", 1}, {" ", 2}}}, {"unk_token", "?"}}}}
      .dump();
}

const std::vector<std::string> kTags = {"<s>",
                                        "</s>",
                                        "<|im_start|>",
                                        "<|im_end|>",
                                        "<|user|>",
                                        "<|end|>",
                                        "<|system|>",
                                        "<|assistant|>",
                                        "<|endoftext|>",
                                        "<start_of_turn>",
                                        "<eos>",
                                        "<bos>",
                                        "<end_of_turn>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "[INST]",
                                        "[/INST]",
                                        "<|eot_id|>",
                                        "<|begin_of_text|>",
                                        "<|eom_id|>",
                                        "<|return|>",
                                        "<|start|>",
                                        "<|message|>",
                                        "<|channel|>",
                                        "<think>",
                                        "</think>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<|CHATBOT_TOKEN|>",
                                        "<｜Assistant｜>",
                                        "<｜end▁of▁sentence｜>",
                                        "<｜User｜>"};

// The tokens' texts, in the order of kTags.
std::vector<std::string> Ends(const testing::TextFiles& files) {
  const auto model = OpenText(files);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<std::string> texts;
  for (const int32_t id : (*model)->EndIds({})) {
    std::string text((*model)->TokenBytesKeepSpecial(id));
    if (text.starts_with(' ')) text.erase(0, 1);  // tokens without a decoder have one
    texts.push_back(text);
  }
  return texts;
}

std::vector<std::string> EndsOfTemplate(const std::string& chat_template,
                                        const std::string& config = "{}") {
  return Ends({.tokenizer_json = TokenizerJson(kTags),
               .tokenizer_config_json = config,
               .chat_template = chat_template});
}

TEST(EndIdsTest, FilesNameThemAsStringsOrObjectsInEitherFile) {
  const std::string tokenizer = TokenizerJson({"<s>", "</s>", "<|im_end|>"}, {"<plain>"});
  const auto ends = [&](std::string_view config, std::string_view map) {
    return Ends({.tokenizer_json = tokenizer,
                 .tokenizer_config_json = config,
                 .special_tokens_map_json = map});
  };
  EXPECT_THAT(ends("", ""), IsEmpty());
  EXPECT_THAT(ends("{}", "{}"), IsEmpty());
  EXPECT_THAT(ends(R"({"bos_token": "<s>", "eos_token": "</s>"})", ""), ElementsAre("</s>"));
  EXPECT_THAT(ends(R"({"eos_token": {"content": "</s>", "lstrip": false}})", ""),
              ElementsAre("</s>"));
  EXPECT_THAT(ends("", R"({"eos_token": "</s>"})"), ElementsAre("</s>"));
  EXPECT_THAT(ends("", R"({"eos_token": {"content": "</s>"}})"), ElementsAre("</s>"));
  EXPECT_THAT(ends(R"({"eos_token": "<|im_end|>"})", R"({"eos_token": "</s>"})"),
              ElementsAre("</s>", "<|im_end|>"));
  EXPECT_THAT(ends(R"({"eos_token": "</s>"})", R"({"eos_token": "</s>"})"), ElementsAre("</s>"));
  EXPECT_THAT(ends(R"({"eos_token": "<plain>"})", ""), ElementsAre("<plain>"));
  EXPECT_THAT(ends(R"({"eos_token": null})", ""), IsEmpty());
  EXPECT_THAT(ends(R"({"eos_token": "<|unheard|>"})", ""), IsEmpty());
  EXPECT_THAT(ends(R"({"eos_token": 2})", ""), IsEmpty());
  EXPECT_THAT(ends(R"({"eos_token": ["</s>"]})", ""), IsEmpty());
  EXPECT_THAT(ends(R"({"pad_token": "</s>", "unk_token": "<s>"})", ""), IsEmpty());
}

TEST(EndIdsTest, AnEosTokenThatTheVocabularyLacksIsAWarning) {
  const std::string tokenizer = TokenizerJson({"</s>"});
  const auto warnings = [&](std::string_view config, std::string_view map) {
    const auto model = OpenText({.tokenizer_json = tokenizer,
                                 .tokenizer_config_json = config,
                                 .special_tokens_map_json = map});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->warnings();
  };
  EXPECT_THAT(warnings(R"({"eos_token": "</s>"})", ""), IsEmpty());
  EXPECT_THAT(warnings(R"({"eos_token": null})", "{}"), IsEmpty());
  const std::string unknown = R"({"eos_token": "<|nope|>"})";
  const auto told =
      ElementsAre(::testing::HasSubstr("eos_token is \"<|nope|>\", which is no token"));
  EXPECT_THAT(warnings(unknown, ""), told);
  EXPECT_THAT(warnings("", unknown), told);
  EXPECT_THAT(warnings(unknown, unknown), told);
  EXPECT_THAT(warnings(R"({"eos_token": {"content": "<|nope|>"}})", R"({"eos_token": "</s>"})"),
              told);
}

TEST(EndIdsTest, ATemplatesLastTurnShowsWhatClosesIt) {
  struct Case {
    const char* name;
    const char* chat_template;
    const char* expected;  // null: nothing
  };
  const Case cases[] = {
      {"ChatML",
       "{% for m in messages %}{{'<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n'}}"
       "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
       "<|im_end|>"},
      {"Llama 3",
       "{{bos_token}}{% for m in messages %}<|start_header_id|>{{m.role}}<|end_header_id|>\n\n"
       "{{m.content|trim}}<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n",
       "<|eot_id|>"},
      {"Llama 2",
       "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{m.content}} [/INST]"
       "{% else %} {{m.content}} </s>{% endif %}{% endfor %}",
       "</s>"},
      {"Gemma",
       "<bos>{% for m in messages %}<start_of_turn>{{'model' if m.role == 'assistant' else m.role}}"
       "\n{{m.content | trim}}<end_of_turn>\n{% endfor %}",
       "<end_of_turn>"},
      {"Phi 3",
       "{% for m in messages %}<|{{m.role}}|>\n{{m.content}}<|end|>\n{% endfor %}"
       "{% if add_generation_prompt %}<|assistant|>\n{% else %}<|endoftext|>{% endif %}",
       "<|end|>"},
      {"Command R",
       "{% for m in messages %}<|CHATBOT_TOKEN|>{{m.content.strip()}}<|END_OF_TURN_TOKEN|>"
       "{% endfor %}",
       "<|END_OF_TURN_TOKEN|>"},
      {"DeepSeek",
       "{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{m.content}}{% else %}"
       "<｜Assistant｜>{{m.content}}<｜end▁of▁sentence｜>{% endif %}{% endfor %}",
       "<｜end▁of▁sentence｜>"},
      {"harmony: the last turn ends otherwise than those before",
       "{% for m in messages %}<|start|>{{m.role}}<|message|>{{m.content}}"
       "{% if loop.last %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}",
       "<|return|>"},
      {"the variable eos_token", "{% for m in messages %}{{m.content}}{{eos_token}}{% endfor %}",
       "</s>"},
      {"text before the end",
       "{% for m in messages %}{{m.content}}\n### End\n<|im_end|>{% endfor %}", "<|im_end|>"},
      {"a turn that closes where the next begins",
       "{% for m in messages %}{% if not loop.first %}<|im_end|>\n{% endif %}"
       "<|im_start|>{{m.role}}\n{{m.content}}{% endfor %}",
       "<|im_end|>"},
      {"GLM: the next turn's opening",
       "{% for m in messages %}<|{{m.role}}|>\n{{m.content}}{% endfor %}", "<|user|>"},
      {"a last turn that is refused",
       "{% if messages[-1].role != 'user' %}{{raise_exception('no')}}{% endif %}"
       "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"thoughts are cut from the content",
       "{% for m in messages %}{{m.content.split('</think>')[-1]}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"the answer is in the text twice",
       "{% for m in messages %}<|{{m.role}}|>{{m.content}}\n{% endfor %}"
       "{{messages[-1].content}}<|end|>",
       "<|end|>"},
      {"only generation prompts have tags",
       "{% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}"
       "{% if add_generation_prompt %}<|assistant|>{% endif %}",
       nullptr},
      {"plain text", "{% for m in messages %}{{m.role}}: {{m.content}}\n\n{% endfor %}", nullptr},
      {"words before the next turn's tag",
       "{% for m in messages %}{{m.content}}{% if not loop.last %}\nUser: <s>{% endif %}"
       "{% endfor %}",
       nullptr},
      {"no answer in the text", "{% for m in messages %}<|im_end|>{% endfor %}", nullptr},
      {"all is refused", "{{raise_exception('never')}}", nullptr},
      {"nothing at all", "{{''}}", nullptr},
      {"without end",
       "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", nullptr},
  };
  for (const Case& one : cases) {
    // eos_token is a variable of the template, and named; the template's own end comes beside it.
    const auto ends = EndsOfTemplate(one.chat_template, R"({"eos_token": "</s>"})");
    std::vector<std::string> expected = {"</s>"};
    if (one.expected != nullptr && one.expected != std::string("</s>")) {
      expected.push_back(one.expected);
    }
    EXPECT_THAT(ends, ::testing::UnorderedElementsAreArray(expected)) << one.name;
  }
}

TEST(EndIdsTest, OfTokensThatCloseTogetherOneThatIsNamedCounts) {
  const auto ends = [](const char* chat_template, std::vector<int32_t> known) {
    const auto model = OpenText(
        {.tokenizer_json = TokenizerJson({"<a>", "<b>", "<c>"}), .chat_template = chat_template});
    EXPECT_TRUE(model.ok()) << model.status();
    return (*model)->EndIds(known);
  };
  constexpr int32_t kA = 3, kB = 4, kC = 5;
  const char* const kTogether = "{% for m in messages %}{{m.content}}<a><b>\n<c>{% endfor %}";
  EXPECT_THAT(ends(kTogether, {}), ElementsAre(kA));
  EXPECT_THAT(ends(kTogether, {kA, kB}), ElementsAre(kA));
  EXPECT_THAT(ends(kTogether, {kB}), ElementsAre(kB));
  EXPECT_THAT(ends(kTogether, {kC}), ElementsAre(kA));
  EXPECT_THAT(ends(kTogether, {-1, 99999}), ElementsAre(kA));
  const char* const kBetween =
      "{% for m in messages %}{% if not loop.first %}<a><b>{% endif %}<c>{{m.content}}{% endfor %}";
  EXPECT_THAT(ends(kBetween, {}), ElementsAre(kA));
  EXPECT_THAT(ends(kBetween, {kB}), ElementsAre(kB));
}

TEST(EndIdsTest, ATemplateForToolsIsRenderedWithoutAny) {
  EXPECT_THAT(EndsOfTemplate("{% for t in tools %}{{t}}{% endfor %}"
                             "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}"),
              ElementsAre("<|im_end|>"));
}

TEST(EndIdsTest, ArgumentsShowWhatATemplateClosesTurnsWith) {
  struct Case {
    const char* name;
    const char* chat_template;
    const char* expected;  // null: nothing
  };
  const Case cases[] = {
      {"texts without which it refuses",
       "{% set head = 'Functions: ' + functions + '. Today is ' + datetime %}{{head}}"
       "{% for m in messages %}{{m.content}}<|eot_id|>{% endfor %}",
       "<|eot_id|>"},
      {"its own refusal",
       "{% if not date_string is defined %}{{raise_exception('date_string is needed')}}{% endif %}"
       "{% for m in messages %}{{m.content}}<|im_end|>\n{% endfor %}",
       "<|im_end|>"},
      {"a text that is not empty",
       "{% if not persona %}{{raise_exception('persona')}}{% endif %}"
       "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"a number",
       "{% if budget > 0 %}{{budget}}{% endif %}"
       "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"a list",
       "{{([] + functions)|length}}{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"an object",
       "{% for k, v in controls.items() %}{{k}}{% endfor %}"
       "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"documents, which are none in a conversation without any",
       "{% for d in documents %}{{d}}{% endfor %}"
       "{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       "<|im_end|>"},
      {"a switch for training",
       "{% for m in messages %}{{m.role}}: {{m.content}}"
       "{% if m.role == 'assistant' and is_training %}<|end|>{% endif %}\n{% endfor %}",
       "<|end|>"},
      {"a switch for the last turn alone",
       "{% for m in messages %}{{m.role}}: {{m.content}}"
       "{% if loop.last and add_eos %}<|end|>{% endif %}\n{% endfor %}",
       "<|end|>"},
      {"a variable of the files that they lack",
       "{% for m in messages %}{{'' + pad_token + m.content}}<|end|>{% endfor %}", "<|end|>"},
      {"what it closes turns with whatever the arguments",
       "{% for m in messages %}{{m.content}}<|im_end|>{% if thinking %}<|end|>{% endif %}"
       "{% endfor %}",
       "<|im_end|>"},
      {"an argument that begins an answer",
       "{% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}"
       "assistant: {% if thinking %}<think>{% endif %}",
       nullptr},
      {"no argument helps",
       "{{raise_exception(why)}}{% for m in messages %}{{m.content}}<|im_end|>{% endfor %}",
       nullptr},
      {"steps without end",
       "{% if flag %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
       "{% endfor %}{% endif %}{% for m in messages %}{{m.content}}{% endfor %}",
       nullptr},
  };
  for (const Case& one : cases) {
    std::vector<std::string> expected;
    if (one.expected != nullptr) expected.push_back(one.expected);
    EXPECT_EQ(EndsOfTemplate(one.chat_template), expected) << one.name;
  }
}

TEST(EndIdsTest, ATemplateThatRefusesTheAssistantShowsWhatClosesAllOtherTurns) {
  // Jinja2 sets no attributes of messages.
  const std::string refusal =
      "{% for m in messages %}{% if m.role == 'assistant' %}{% set m.calls = [] %}{% endif %}"
      "{% endfor %}";
  const auto ends = [&](const std::string& turns) { return EndsOfTemplate(refusal + turns); };
  EXPECT_THAT(ends("{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n"
                   "{% endfor %}"),
              ElementsAre("<|im_end|>"));
  // What only the user's turns end with begins the assistant's.
  EXPECT_THAT(ends("{% for m in messages %}{% if m.role == 'user' %}[INST]{{m.content}}[/INST]"
                   "{% else %}{{m.content}}<s>{% endif %}{% endfor %}"),
              IsEmpty());
  EXPECT_THAT(ends("{% for m in messages %}<|{{m.role}}|>{{m.content}}{% endfor %}<|assistant|>"),
              IsEmpty());
  EXPECT_THAT(ends("{% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}"), IsEmpty());
  // This token ends the turns of others alone.
  EXPECT_THAT(EndsOfTemplate("{% for m in messages %}{{m.content}}"
                             "{% if m.role != 'assistant' %}<|im_end|>{% endif %}\n{% endfor %}"),
              IsEmpty());
}

TEST(EndIdsTest, AClosingTokenThatTheFilesDoNotCallSpecialCounts) {
  const auto ends = [](const char* chat_template) {
    return Ends({.tokenizer_json = TokenizerJson({"<s>"}, {"<|im_end|>", "\n\n", "<b>", "</b>"}),
                 .chat_template = chat_template});
  };
  EXPECT_THAT(ends("{% for m in messages %}{{m.content}}<|im_end|>\n{% endfor %}"),
              ElementsAre("<|im_end|>"));
  EXPECT_THAT(ends("{% for m in messages %}{{m.content}}\n\n{% endfor %}"), IsEmpty());
  EXPECT_THAT(ends("{% for m in messages %}{{m.content}} <b>bye</b>{% endfor %}"), IsEmpty());
  EXPECT_THAT(ends("{% for m in messages %}{{m.content}}{% endfor %}"), IsEmpty());
}

TEST(EndIdsTest, TheyAreTheSameEachTime) {
  // A template that tells the time: the ends depend on the files alone.
  const char* const kClock =
      "{% for m in messages %}{{m.content}}{{strftime_now('%Y')}}"
      "{{'<|im_end|>' if strftime_now('%Y') == '1970' else '<|end|>'}}{% endfor %}";
  EXPECT_EQ(EndsOfTemplate(kClock), EndsOfTemplate(kClock));
  EXPECT_THAT(EndsOfTemplate(kClock), ElementsAre("<|im_end|>"));
}

}  // namespace
}  // namespace continuo::text
