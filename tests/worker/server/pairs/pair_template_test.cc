// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/pairs/pair_template.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "tests/testing/tiny_model.h"

namespace continuo::server {
namespace {

using ::testing::HasSubstr;

constexpr char kQwen3[] = "Qwen3ForCausalLM";
constexpr char kPairs[] =
    "{% for m in messages if m.role == 'system' %}[I] {{ m.content }}\n{% endfor %}"
    "{% for m in messages if m.role == 'query' %}[Q] {{ m.content }}\n{% endfor %}"
    "{% for m in messages if m.role == 'document' %}[D] {{ m.content }}{% endfor %} [S]";

// The text of a model with this chat template; null: none.
std::unique_ptr<text::TextModel> TextOf(const nlohmann::json& chat_template) {
  const testing::TinyModel tiny;
  nlohmann::json config = nlohmann::json::parse(tiny.Read("tokenizer_config.json"));
  config["chat_template"] = chat_template;
  tiny.Write("tokenizer_config.json", config.dump());
  auto text = text::TextModel::Open(tiny.dir());
  EXPECT_TRUE(text.ok()) << text.status();
  return *std::move(text);
}

std::string Rendered(const PairTemplate& pairs, const std::string& query,
                     const std::string& document,
                     const std::optional<std::string>& instruction = std::nullopt) {
  const auto pair = pairs.Render(query, document, instruction);
  EXPECT_TRUE(pair.ok()) << pair.status();
  if (!pair.ok()) return "";
  EXPECT_EQ(pair->chat.text.substr(pair->document_begin, pair->document_end - pair->document_begin),
            document);
  size_t done = 0;
  for (const auto& [begin, end] : pair->chat.content) {
    EXPECT_GE(begin, done);
    EXPECT_LE(end, pair->chat.text.size());
    done = end;
  }
  return pair->chat.text;
}

TEST(PairTemplateTest, AModelOfQwen3HasTheTextOfItsModelCard) {
  // A template of conversations alone shows no query.
  for (const nlohmann::json& chat_template :
       {nlohmann::json(), nlohmann::json("{% for m in messages if m.role == 'user' %}"
                                         "{{ m.content }}{% endfor %}")}) {
    const auto text = TextOf(chat_template);
    const auto pairs = PairTemplate::Find(*text, kQwen3, "");
    ASSERT_TRUE(pairs.ok()) << pairs.status();
    const std::string front =
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
        "<|im_start|>user\n<Instruct>: ";
    const std::string back = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    EXPECT_EQ(Rendered(*pairs, "Who?", "Mira."),
              front +
                  "Given a web search query, retrieve relevant passages that answer the query\n"
                  "<Query>: Who?\n<Document>: Mira." +
                  back);
    EXPECT_EQ(pairs->source(), "the model card of Qwen3-Reranker");
    EXPECT_EQ(Rendered(*pairs, "", "", "Do."), front + "Do.\n<Query>: \n<Document>: " + back);
    EXPECT_EQ(Rendered(*PairTemplate::Find(*text, kQwen3, "Mine."), "q", "d"),
              front + "Mine.\n<Query>: q\n<Document>: d" + back);
  }
}

TEST(PairTemplateTest, AChatTemplateThatShowsPairsIsUsed) {
  const auto text = TextOf(kPairs);
  const auto pairs = PairTemplate::Find(*text, "LlamaForCausalLM", "");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(Rendered(*pairs, "Who?", "Mira."), "[Q] Who?\n[D] Mira. [S]");
  EXPECT_EQ(Rendered(*pairs, "Who?", "Who?", "Find."), "[I] Find.\n[Q] Who?\n[D] Who? [S]");
  const auto own = PairTemplate::Find(*text, kQwen3, "Find.");
  EXPECT_EQ(Rendered(*own, "q", "d"), "[I] Find.\n[Q] q\n[D] d [S]");
  EXPECT_EQ(Rendered(*own, "q", "d", ""), "[Q] q\n[D] d [S]");
  EXPECT_NE(own->summary(), pairs->summary());
  EXPECT_EQ(own->source(), "the chat template");
}

TEST(PairTemplateTest, WhatATemplateDoesNotShowIsRefused) {
  const auto none = TextOf(nullptr);
  const absl::Status unknown = PairTemplate::Find(*none, "LlamaForCausalLM", "").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("LlamaForCausalLM"));
  const auto plain = TextOf("{{ messages[-2].content }} / {{ messages[-1].content }}");
  const auto pairs = PairTemplate::Find(*plain, "LlamaForCausalLM", "");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(Rendered(*pairs, "q", "d"), "q / d");
  const absl::Status refused = pairs->Render("q", "d", "Find.").status();
  EXPECT_EQ(protocol::FieldOf(refused), "instruction") << refused;
  EXPECT_TRUE(
      absl::IsFailedPrecondition(PairTemplate::Find(*plain, "LlamaForCausalLM", "Find.").status()));
  const auto twice = TextOf("{{ messages[0].content }}{{ messages[1].content * 2 }}");
  EXPECT_FALSE(PairTemplate::Find(*twice, "LlamaForCausalLM", "").ok());
}

TEST(PairTemplateTest, TheDocumentIsFoundAsItIsShown) {
  const auto text = TextOf("{{ messages[-2].content }} / {{ messages[-1].content | trim }}");
  const auto pairs = PairTemplate::Find(*text, "LlamaForCausalLM", "");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  struct Case {
    std::string query, document, shown;
  };
  const std::vector<Case> cases = {{"q", "d", "d"}, {"q", " d\n", "d"}, {"q", "", ""},
                                   {"q", " ", ""},  {"", "d", "d"},     {"", "", ""}};
  for (const auto& [query, document, shown] : cases) {
    const auto pair = pairs->Render(query, document, std::nullopt);
    ASSERT_TRUE(pair.ok()) << pair.status();
    EXPECT_EQ(pair->chat.text, query + " / " + shown);
    EXPECT_TRUE(pair->is_cuttable);
    EXPECT_EQ(
        pair->chat.text.substr(pair->document_begin, pair->document_end - pair->document_begin),
        shown);
  }
}

TEST(PairTemplateTest, ADocumentThatIsShownChangedIsNotFound) {
  const auto text =
      TextOf("{{ messages[-2].content }} / {{ messages[-1].content | replace('z', 'bb') }}");
  const auto pairs = PairTemplate::Find(*text, "LlamaForCausalLM", "");
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  const auto pair = pairs->Render("q", "xzy", std::nullopt);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->chat.text, "q / xbby");
  EXPECT_FALSE(pair->is_cuttable);
  EXPECT_EQ(pair->document_begin, pair->document_end);
  EXPECT_TRUE(pairs->Render("q", "xy", std::nullopt)->is_cuttable);
}

}  // namespace
}  // namespace continuo::server
