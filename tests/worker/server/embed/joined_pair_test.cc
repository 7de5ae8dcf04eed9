// SPDX-License-Identifier: Apache-2.0
// Pairs of a model without a template, whose tokenizer joins the two texts as BERT's does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "services/worker/server/embed/embed_work.h"
#include "services/worker/server/session/convert.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/text_files.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

constexpr int32_t kCls = 300, kSep = 301;

// One token a byte, and "CLS query SEP document SEP", whose last two parts are of type 1.
std::unique_ptr<text::TextModel> OpenJoining() {
  Json vocab;
  for (int c = ' '; c < 0x7f; ++c) vocab[std::string(1, static_cast<char>(c))] = c;
  vocab["[CLS]"] = kCls;
  vocab["[SEP]"] = kSep;
  const auto special = [](int32_t id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const auto token = [](const char* name, int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  const auto of = [](const char* name, int32_t id) {
    return Json{{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  const Json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", {special(kCls, "[CLS]"), special(kSep, "[SEP]")}},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"Regex", "."}}},
        {"behavior", "Isolated"},
        {"invert", false}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0)}},
        {"pair",
         {token("[CLS]", 0), sequence("A", 0), token("[SEP]", 0), sequence("B", 1),
          token("[SEP]", 1)}},
        {"special_tokens", {{"[CLS]", of("[CLS]", kCls)}, {"[SEP]", of("[SEP]", kSep)}}}}},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", vocab}}}};
  auto opened = testing::OpenText({.tokenizer_json = tokenizer.dump()});
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

// A head of RoBERTa's form, or of BERT's, which knows two types of tokens. Its weights are zeros.
std::shared_ptr<const embedding::ScoreHead> LoadHead(bool has_types) {
  Json header;
  const std::string dense = has_types ? "model.pooler.dense" : "classifier.dense";
  const std::string product = has_types ? "classifier" : "classifier.out_proj";
  int64_t end = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t bytes = sizeof(float);
    for (const int64_t n : shape) bytes *= n;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  };
  add("model.embeddings.word_embeddings.weight", {1, 2});
  add(dense + ".weight", {2, 2});
  add(dense + ".bias", {2});
  add(product + ".weight", {1, 2});
  add(product + ".bias", {1});
  const std::string text = header.dump();
  std::string file(8, '\0');
  const uint64_t size = text.size();
  std::memcpy(file.data(), &size, sizeof size);
  const testing::TempFolder folder;
  std::ofstream(folder.path() / "model.safetensors", std::ios::binary)
      << file << text << std::string(static_cast<size_t>(end), '\0');
  model::ModelConfig config;
  config.hidden_size = 2;
  config.encoder.is_encoder = true;
  config.encoder.num_token_types = has_types ? 2 : 1;
  config.score_head.form =
      has_types ? model::ScoreHeadConfig::Form::kPooler : model::ScoreHeadConfig::Form::kClassifier;
  auto head = embedding::ScoreHead::Load(folder.path().string(), std::nullopt, config);
  EXPECT_TRUE(head.ok()) << head.status();
  return *std::move(head);
}

class JoinedPairTest : public ::testing::Test {
 protected:
  JoinedPairTest() : text_(OpenJoining()), model_(testing::MakeServedModel(text_.get())) {
    model_.vocab_size = text_->vocab_size();
    model_.max_context_tokens = 20;
    model_.score = LoadHead(/*has_types=*/true);
    call_.random = testing::CountingRandom();
    v1::TextPair& pair = *request_.add_inputs()->mutable_pair();
    pair.set_query("q?");
    pair.set_document("abcde");
  }
  absl::StatusOr<EmbedWork> Prepare() {
    return PrepareEmbedding(request_, call_, model_, SaltKey(call_.random));
  }
  engine::Request Prompt() {
    absl::StatusOr<EmbedWork> work = Prepare();
    EXPECT_TRUE(work.ok()) << work.status();
    return work.ok() ? std::move(work->requests[0]) : engine::Request();
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  CallInfo call_;
  v1::EmbedRequest request_;
};

TEST_F(JoinedPairTest, ThePromptIsThatOfTheTokenizer) {
  const engine::Request prompt = Prompt();
  EXPECT_THAT(prompt.prompt, ElementsAre(kCls, 'q', '?', kSep, 'a', 'b', 'c', 'd', 'e', kSep));
  EXPECT_THAT(prompt.token_types, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(prompt.pooling, engine::Pooling::kFirst);
  EXPECT_TRUE(prompt.reads_state);
}

TEST_F(JoinedPairTest, SpecialTokensInItsTextsAreTextUnlessWorkersParseThem) {
  request_.mutable_inputs(0)->mutable_pair()->set_query("[CLS]");
  request_.mutable_inputs(0)->mutable_pair()->set_document("a[SEP]b");
  engine::Request prompt = Prompt();
  EXPECT_THAT(prompt.prompt, ElementsAre(kCls, '[', 'C', 'L', 'S', ']', kSep, 'a', '[', 'S', 'E',
                                         'P', ']', 'b', kSep));
  EXPECT_THAT(prompt.token_types, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
  request_.set_max_document_tokens(2);
  EXPECT_THAT(Prompt().prompt, ElementsAre(kCls, '[', 'C', 'L', 'S', ']', kSep, 'a', '[', kSep));
  request_.clear_max_document_tokens();
  model_.parse_special_in_content = true;
  prompt = Prompt();
  EXPECT_THAT(prompt.prompt, ElementsAre(kCls, kCls, kSep, 'a', kSep, 'b', kSep));
  EXPECT_THAT(prompt.token_types, ElementsAre(0, 0, 0, 1, 1, 1, 1));
}

TEST_F(JoinedPairTest, TypesAreThoseThatTheModelKnows) {
  model_.score = LoadHead(/*has_types=*/false);
  const engine::Request prompt = Prompt();
  EXPECT_EQ(prompt.prompt.size(), 10u);
  EXPECT_THAT(prompt.token_types, IsEmpty());
}

TEST_F(JoinedPairTest, TheDocumentAloneIsCut) {
  request_.set_max_document_tokens(2);
  engine::Request prompt = Prompt();
  EXPECT_THAT(prompt.prompt, ElementsAre(kCls, 'q', '?', kSep, 'a', 'b', kSep));
  EXPECT_THAT(prompt.token_types, ElementsAre(0, 0, 0, 0, 1, 1, 1));
  request_.clear_max_document_tokens();
  request_.mutable_truncation()->set_max_tokens(8);
  EXPECT_THAT(Prompt().prompt, ElementsAre(kCls, 'q', '?', kSep, 'c', 'd', 'e', kSep));
  request_.mutable_truncation()->set_keep_first(true);
  prompt = Prompt();
  EXPECT_THAT(prompt.prompt, ElementsAre(kCls, 'q', '?', kSep, 'a', 'b', 'c', kSep));
  EXPECT_EQ(prompt.token_types.size(), 8u);
  request_.mutable_truncation()->set_max_tokens(5);
  EXPECT_THAT(std::string(Prepare().status().message()), HasSubstr("truncation.max_tokens"));
  request_.mutable_inputs(0)->mutable_pair()->set_document("");
  EXPECT_THAT(Prompt().prompt, ElementsAre(kCls, 'q', '?', kSep, kSep));
}

TEST_F(JoinedPairTest, APairThatIsTooLongIsRefusedOrCut) {
  request_.mutable_inputs(0)->mutable_pair()->set_document(std::string(30, 'x'));
  const absl::Status refused = Prepare().status();
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonContextTooLong) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("inputs[0].pair.document"));
  request_.mutable_truncation();
  EXPECT_EQ(Prompt().prompt.size(), 20u);
  // A query that leaves no room is never cut.
  request_.mutable_inputs(0)->mutable_pair()->set_query(std::string(30, 'x'));
  EXPECT_EQ(protocol::ReasonOf(Prepare().status()), protocol::kReasonContextTooLong);
}

TEST_F(JoinedPairTest, AnInstructionHasNoPlace) {
  request_.set_instruction("Find towns.");
  const absl::Status refused = Prepare().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("instruction"));
}

TEST(EncodedPairTest, SpansAndTypesAreOfTheSecondText) {
  const auto text = OpenJoining();
  const auto pair = text->EncodePair("ab", "cde", false);
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->second_begin, 4u);
  EXPECT_EQ(pair->second_end, 7u);
  EXPECT_EQ(pair->tokens.size(), pair->types.size());
  const auto empty = text->EncodePair("", "", false);
  EXPECT_THAT(empty->tokens, ElementsAre(kCls, kSep, kSep));
  EXPECT_EQ(empty->second_begin, empty->second_end);
  EXPECT_EQ(text->EncodePair("\xff", "a", false).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::server
