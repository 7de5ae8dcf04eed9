// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/embed/embed_session.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/validate.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const embedding::EmbeddingHead> Head(int size = testing::kVocab) {
  embedding::SentenceModules modules = {.normalises = true,
                                        .prompts = {{"document", ""}, {"query", "q:"}}};
  return *embedding::EmbeddingHead::Load("/nowhere", modules, size);
}

class EmbedTest : public ::testing::Test {
 protected:
  EmbedTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    model_.embedding = Head(64);
    call_.now = absl::FromUnixSeconds(1000);
    call_.random = testing::CountingRandom();
    request_.add_inputs()->set_text("abc");
  }
  absl::StatusOr<EmbedWork> Prepare() {
    return PrepareEmbedding(request_, call_, model_, SaltKey(call_.random));
  }
  std::string ErrorOf(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = Prepare().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  CallInfo call_;
  v1::EmbedRequest request_;
};

TEST_F(EmbedTest, EachInputIsARequestThatReadsAState) {
  request_.add_inputs()->mutable_token_ids()->add_ids(7);
  request_.mutable_cache()->set_bypass(true);
  request_.set_priority(3);
  call_.tenant = "t";
  const auto work = Prepare();
  ASSERT_TRUE(work.ok()) << work.status();
  ASSERT_EQ(work->requests.size(), 2u);
  const engine::Request& first = work->requests[0];
  EXPECT_THAT(first.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_TRUE(first.reads_state);
  EXPECT_TRUE(first.cache_bypass);
  EXPECT_EQ(first.max_tokens, 0);
  EXPECT_EQ(first.priority, 3);
  EXPECT_EQ(first.tenant, "t");
  EXPECT_EQ(first.label, work->request_id);
  EXPECT_THAT(work->requests[1].prompt, ElementsAre(7));
  EXPECT_EQ(work->dimensions, 64);
  EXPECT_TRUE(work->normalises);
  request_.set_dimensions(5);
  request_.set_normalize(false);
  EXPECT_EQ(Prepare()->dimensions, 5);
  EXPECT_FALSE(Prepare()->normalises);
}

TEST_F(EmbedTest, APromptGoesInFrontOfTexts) {
  request_.set_prompt_name("query");
  EXPECT_THAT(Prepare()->requests[0].prompt, ElementsAre('q', ':', 'a', 'b', 'c'));
  request_.set_prompt_name("");
  EXPECT_THAT(Prepare()->requests[0].prompt, ElementsAre('a', 'b', 'c'));
  request_.set_prompt_name("passage");
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("prompt_name"), HasSubstr("document, query")));
  request_.set_prompt_name("query");
  request_.add_inputs()->mutable_token_ids()->add_ids(7);
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("prompt_name"), HasSubstr("inputs[1]")));
}

TEST_F(EmbedTest, AnInputThatIsTooLongIsCutAsAskedOrRefused) {
  request_.clear_inputs();
  request_.add_inputs()->set_text(std::string(130, 'x') + "end");
  const absl::Status refused = Prepare().status();
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonContextTooLong) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("inputs[0].text"), HasSubstr("133 tokens"), HasSubstr("128")));
  request_.mutable_truncation();
  EXPECT_EQ(Prepare()->requests[0].prompt.size(), 128u);
  EXPECT_EQ(Prepare()->requests[0].prompt.back(), 'd');
  request_.mutable_truncation()->set_max_tokens(4);
  EXPECT_THAT(Prepare()->requests[0].prompt, ElementsAre('x', 'e', 'n', 'd'));
  request_.mutable_truncation()->set_keep_first(true);
  EXPECT_THAT(Prepare()->requests[0].prompt, ElementsAre('x', 'x', 'x', 'x'));
  request_.mutable_truncation()->set_max_tokens(100000);
  EXPECT_EQ(Prepare()->requests[0].prompt.size(), 128u) << "the model's limit holds all the same";
  request_.mutable_inputs(0)->mutable_token_ids()->mutable_ids()->Add(7);
  request_.mutable_inputs(0)->mutable_token_ids()->mutable_ids()->Resize(200, 9);
  EXPECT_EQ(Prepare()->requests[0].prompt.front(), 7);
  request_.mutable_truncation()->set_keep_first(false);
  EXPECT_EQ(Prepare()->requests[0].prompt.front(), 9);
}

TEST_F(EmbedTest, WhatDoesNotFitIsNamed) {
  const v1::EmbedRequest good = request_;
  const auto error = [&](const std::function<void(v1::EmbedRequest&)>& change) {
    request_ = good;
    change(request_);
    return ErrorOf();
  };
  EXPECT_THAT(error([](auto& r) { r.clear_inputs(); }), HasSubstr("inputs: is empty"));
  EXPECT_THAT(error([](auto& r) { r.add_inputs(); }), HasSubstr("inputs[1]: is missing"));
  EXPECT_THAT(error([](auto& r) {
                for (int i = 0; i < 2048; ++i) r.add_inputs()->set_text("a");
              }),
              HasSubstr("has 2049 entries, the limit is 2048"));
  EXPECT_THAT(error([](auto& r) { r.mutable_inputs(0)->set_text(""); }),
              HasSubstr("inputs[0].text"));
  EXPECT_THAT(error([](auto& r) { r.mutable_inputs(0)->set_text("\xff"); }), HasSubstr("UTF-8"));
  EXPECT_THAT(error([](auto& r) { r.mutable_inputs(0)->mutable_token_ids(); }),
              HasSubstr("inputs[0].token_ids"));
  EXPECT_THAT(error([](auto& r) { r.mutable_inputs(0)->mutable_token_ids()->add_ids(99999); }),
              HasSubstr("inputs[0].token_ids.ids[0]: id 99999"));
  EXPECT_THAT(error([](auto& r) { r.set_dimensions(0); }), HasSubstr("dimensions"));
  EXPECT_THAT(error([](auto& r) { r.set_dimensions(65); }), HasSubstr("64 values"));
  EXPECT_THAT(error([](auto& r) { r.set_priority(101); }), HasSubstr("priority"));
  EXPECT_THAT(error([](auto& r) { r.set_request_id("\n"); }), HasSubstr("request_id"));
}

TEST_F(EmbedTest, AResponseHasAtMostThreeMiB) {
  model_.embedding = Head(4096);
  for (int i = 0; i < 190; ++i) request_.add_inputs()->set_text("a");
  EXPECT_TRUE(Prepare().ok());
  request_.add_inputs()->set_text("a");
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("inputs"), HasSubstr("191")));
  request_.set_dimensions(1024);
  EXPECT_TRUE(Prepare().ok());
}

TEST_F(EmbedTest, AModelHasEmbeddingsOrAnswers) {
  v1::GenerateRequest generate;
  generate.set_text("abc");
  const absl::Status refused = ValidateGenerate(generate, model_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("\"bytes\""), HasSubstr("Embed")));
  EXPECT_THAT(ToProto(model_).capabilities(), ElementsAre(v1::CAPABILITY_EMBED));
  EXPECT_EQ(ToProto(model_).embedding_dimensions(), 64u);
  EXPECT_THAT(ToProto(model_).prompt_names(), ElementsAre("document", "query"));
  model_.embedding = nullptr;
  EXPECT_THAT(ErrorOf(absl::StatusCode::kUnimplemented),
              AllOf(HasSubstr("\"bytes\""), HasSubstr("no embeddings")));
  request_.set_model("other");
  ErrorOf(absl::StatusCode::kNotFound);
}

// What the tokenizer adds around a text stays where the text is cut.
TEST(EmbedTextTest, SpecialTokensSurviveACut) {
  const auto text = testing::OpenTestModel("byte_fallback");
  ServedModel model = testing::MakeServedModel(text.get());
  model.vocab_size = text->vocab_size();
  model.embedding = Head(8);
  model.max_context_tokens = 5;
  CallInfo call;
  call.random = testing::CountingRandom();
  v1::EmbedRequest request;
  request.add_inputs()->set_text("hello there hello there hello there");
  request.mutable_truncation();
  const auto full = text->Encode(request.inputs(0).text(), true);
  const auto plain = text->Encode(request.inputs(0).text(), false);
  ASSERT_TRUE(full.ok() && plain.ok());
  ASSERT_EQ(full->size(), plain->size() + 1) << "the beginning is marked";
  const SaltKey key(call.random);
  const auto last = PrepareEmbedding(request, call, model, key);
  ASSERT_TRUE(last.ok()) << last.status();
  const std::vector<int32_t> want_last = {full->front(), plain->end()[-4], plain->end()[-3],
                                          plain->end()[-2], plain->end()[-1]};
  EXPECT_EQ(last->requests[0].prompt, want_last);
  request.mutable_truncation()->set_keep_first(true);
  const auto first = PrepareEmbedding(request, call, model, key);
  EXPECT_EQ(first->requests[0].prompt, std::vector<int32_t>(full->begin(), full->begin() + 5));
  request.mutable_truncation()->set_max_tokens(1);
  const absl::Status none = PrepareEmbedding(request, call, model, key).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("truncation.max_tokens"));
}

// A model of scores whose template is "QUERY>DOCUMENT.".
class ScoreTest : public EmbedTest {
 protected:
  ScoreTest() {
    UseTemplate("{{ messages[-2].content }}>{{ messages[-1].content }}.");
    model_.embedding = nullptr;
    model_.score = LoadScore();
    request_.clear_inputs();
    Add("q", "abcde");
  }
  // The template of pairs from now on, and the tokenizer.
  void UseTemplate(const std::string& chat_template, const std::string& tokenizer = "byte_level") {
    const nlohmann::json config = {{"chat_template", chat_template}};
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
      std::ifstream in(
          testing::SourcePath(absl::StrCat("tests/worker/text/testdata/", tokenizer, "/", file)));
      nlohmann::json content = nlohmann::json::parse(in);
      if (file == std::string("tokenizer_config.json")) content.update(config);
      std::ofstream(folder_.path() / file) << content;
    }
    pairs_text_ = *text::TextModel::Open(folder_.path().string());
    model_.text = pairs_text_.get();
    model_.vocab_size = pairs_text_->vocab_size();
    model_.pairs =
        std::make_shared<PairTemplate>(*PairTemplate::Find(*pairs_text_, "FakeForCausalLM", ""));
  }
  // A head of scores of one number, 1.
  std::shared_ptr<const embedding::ScoreHead> LoadScore() {
    const std::string header =
        R"({"score.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    std::ofstream(folder_.path() / "model.safetensors", std::ios::binary)
        << file << header << std::string("\0\0\x80\x3f", 4);
    model::ModelConfig config;
    config.hidden_size = 1;
    config.score_head.form = model::ScoreHeadConfig::Form::kProduct;
    return *embedding::ScoreHead::Load(folder_.path().string(), std::nullopt, config);
  }
  void Add(const std::string& query, const std::string& document) {
    v1::TextPair& pair = *request_.add_inputs()->mutable_pair();
    pair.set_query(query);
    pair.set_document(document);
  }
  std::string PromptOf(int input = 0) {
    const auto work = Prepare();
    EXPECT_TRUE(work.ok()) << work.status();
    if (!work.ok()) return "";
    const auto& prompt = work->requests[static_cast<size_t>(input)].prompt;
    return std::string(prompt.begin(), prompt.end());
  }

  testing::TempFolder folder_;
  std::unique_ptr<text::TextModel> pairs_text_;
};

TEST_F(ScoreTest, APairIsAPromptInTheModelsTemplate) {
  Add("x", "");
  const auto work = Prepare();
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_EQ(work->dimensions, 1);
  EXPECT_TRUE(work->requests[0].reads_state);
  EXPECT_EQ(PromptOf(0), "q>abcde.");
  EXPECT_EQ(PromptOf(1), "x>.");
  request_.set_instruction("i");
  EXPECT_THAT(ErrorOf(), HasSubstr("instruction"));
}

TEST_F(ScoreTest, TheDocumentAloneIsCut) {
  request_.set_max_document_tokens(3);
  EXPECT_EQ(PromptOf(), "q>abc.");
  request_.set_max_document_tokens(9);
  EXPECT_EQ(PromptOf(), "q>abcde.");
  request_.set_max_document_tokens(0);
  request_.mutable_truncation()->set_max_tokens(5);
  EXPECT_EQ(PromptOf(), "q>de.");
  request_.mutable_truncation()->set_keep_first(true);
  EXPECT_EQ(PromptOf(), "q>ab.");
  request_.set_max_document_tokens(1);
  EXPECT_EQ(PromptOf(), "q>a.") << "the smaller one holds";
  request_.mutable_truncation()->set_max_tokens(3);
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("truncation.max_tokens"), HasSubstr("the 3 tokens")));
}

TEST_F(ScoreTest, ADocumentIsCutAsTheTemplateShowsIt) {
  UseTemplate("{{ messages[-2].content }}>{{ messages[-1].content | trim }}. \n\n");
  request_.clear_inputs();
  Add("q", " abcde\n");
  Add("", "abcde");
  Add("q", "");
  Add("q", " \n ");
  request_.set_max_document_tokens(3);
  EXPECT_EQ(PromptOf(0), "q>abc. \n");
  EXPECT_EQ(PromptOf(1), ">abc. \n");
  EXPECT_EQ(PromptOf(2), "q>. \n");
  EXPECT_EQ(PromptOf(3), "q>. \n");
  request_.clear_max_document_tokens();
  request_.mutable_truncation()->set_max_tokens(6);
  EXPECT_EQ(PromptOf(0), "q>e. \n") << "spaces behind the template are no document";
  request_.mutable_truncation()->set_max_tokens(5);
  EXPECT_THAT(ErrorOf(), HasSubstr("truncation.max_tokens"));
}

TEST_F(ScoreTest, ADocumentThatIsShownChangedIsNotCutInSilence) {
  UseTemplate("{{ messages[-2].content }}>{{ messages[-1].content | replace('z', 'bb') }}.");
  request_.clear_inputs();
  Add("q", "zbcde");
  Add("q", "efg");
  EXPECT_EQ(PromptOf(0), "q>bbbcde.");
  request_.set_max_document_tokens(9);
  const absl::Status refused = Prepare().status();
  EXPECT_EQ(protocol::FieldOf(refused), "inputs[0].pair.document") << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cannot be cut"));
  request_.clear_max_document_tokens();
  request_.mutable_truncation()->set_max_tokens(9);
  EXPECT_EQ(PromptOf(0), "q>bbbcde.") << "it is short enough";
  request_.mutable_truncation()->set_max_tokens(8);
  EXPECT_THAT(ErrorOf(), HasSubstr("cannot be cut"));
}

// The query is text behind the document, too, so that all of it is told from the document.
TEST_F(ScoreTest, AQueryBehindTheDocumentIsNotCut) {
  UseTemplate("{{ messages[-1].content }}>{{ messages[-2].content }}.");
  const std::string end(pairs_text_->TokenBytesKeepSpecial(testing::kEos));
  ASSERT_FALSE(end.empty());
  request_.clear_inputs();
  Add("a" + end + "b", "cdefg");
  request_.set_max_document_tokens(1);
  EXPECT_EQ(PromptOf(), "c>a" + end + "b.");
}

// Where a text begins, this tokenizer writes a space.
TEST_F(ScoreTest, WhatIsBehindTheDocumentIsKnownWhereTextsBeginWithASpace) {
  UseTemplate("{{ messages[-2].content }} / {{ messages[-1].content }} [S]", "byte_fallback");
  request_.clear_inputs();
  Add("hello", "there");
  Add("hello", "there hello there hello");
  const auto whole = Prepare();
  ASSERT_TRUE(whole.ok()) << whole.status();
  request_.set_max_document_tokens(3);  // "there"
  const auto cut = Prepare();
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_EQ(cut->requests[0].prompt, whole->requests[0].prompt);
  EXPECT_EQ(cut->requests[1].prompt, whole->requests[0].prompt);
}

TEST_F(ScoreTest, APairThatIsTooLongIsRefusedOrCut) {
  Add("q", std::string(200, 'x') + "end");
  const absl::Status refused = Prepare().status();
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonContextTooLong) << refused;
  EXPECT_EQ(protocol::FieldOf(refused), "inputs[1].pair.document");
  request_.mutable_truncation()->set_keep_first(true);
  EXPECT_EQ(PromptOf(1), "q>" + std::string(125, 'x') + ".");
  EXPECT_EQ(PromptOf(0), "q>abcde.");
  Add(std::string(200, 'q'), "d");
  EXPECT_EQ(protocol::ReasonOf(Prepare().status()), protocol::kReasonContextTooLong)
      << "queries are not cut";
}

TEST_F(ScoreTest, SpecialTokensInAPairAreText) {
  request_.clear_inputs();
  const std::string end(pairs_text_->TokenBytesKeepSpecial(testing::kEos));
  ASSERT_FALSE(end.empty());
  Add(end, end);
  const auto work = Prepare();
  ASSERT_TRUE(work.ok()) << work.status();
  const auto& prompt = work->requests[0].prompt;
  EXPECT_EQ(std::ranges::count(prompt, testing::kEos), 0);
  EXPECT_EQ(prompt.size(), 2 * end.size() + 2);
}

TEST_F(ScoreTest, WhatIsNotOfScoresIsRefused) {
  request_.set_dimensions(1);
  EXPECT_THAT(ErrorOf(), HasSubstr("dimensions"));
  request_.clear_dimensions();
  request_.set_normalize(true);
  EXPECT_THAT(ErrorOf(), HasSubstr("normalize"));
  request_.clear_normalize();
  request_.set_prompt_name("query");
  EXPECT_THAT(ErrorOf(), HasSubstr("prompt_name"));
  request_.clear_prompt_name();
  request_.add_inputs()->set_text("a");
  EXPECT_THAT(ErrorOf(absl::StatusCode::kUnimplemented), HasSubstr("scores"));
  model_.score = nullptr;
  model_.embedding = Head(64);
  EXPECT_THAT(ErrorOf(absl::StatusCode::kUnimplemented), HasSubstr("embeddings"));
  request_.clear_inputs();
  request_.add_inputs()->set_text("a");
  request_.set_instruction("i");
  EXPECT_THAT(ErrorOf(), HasSubstr("instruction"));
  request_.clear_instruction();
  request_.set_max_document_tokens(1);
  EXPECT_THAT(ErrorOf(), HasSubstr("max_document_tokens"));
}

TEST_F(ScoreTest, AModelThatScoresIsDescribedAsOne) {
  const v1::Model model = ToProto(model_);
  EXPECT_THAT(model.capabilities(), ElementsAre(v1::CAPABILITY_SCORE));
  EXPECT_EQ(model.embedding_dimensions(), 0u);
  v1::GenerateRequest generate;
  generate.set_text("a");
  const absl::Status refused = ValidateGenerate(generate, model_);
  EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("scores"));
}

TEST_F(ScoreTest, StatesBecomeScoresInTheOrderOfInputs) {
  Add("q", "b");
  WorkPool pool(0);
  absl::StatusOr<v1::EmbedResponse> response = absl::InternalError("none");
  auto session = EmbedSession::Create(
      *Prepare(), {.finish = [&](absl::StatusOr<v1::EmbedResponse> r) { response = std::move(r); }},
      &pool, {std::shared_ptr<const void>(), &model_});
  auto requests = session->TakeRequests();
  const auto send = [&](size_t input, float state) {
    engine::RequestEvent event;
    event.state = {state};
    event.ended = absl::OkStatus();
    requests[input].second(std::move(event));
  };
  send(1, 100);
  send(0, 0);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_EQ(response->embeddings_size(), 2);
  EXPECT_THAT(response->embeddings(0).values(), ElementsAre(0.5f));
  EXPECT_THAT(response->embeddings(1).values(), ElementsAre(1.0f));
  EXPECT_EQ(response->embeddings(0).logit(), 0);
  EXPECT_EQ(response->embeddings(1).logit(), 100);
}

class EmbedSessionTest : public ::testing::Test {
 protected:
  EmbedSessionTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    model_.embedding = Head(2);
    EmbedWork work = {.dimensions = 2, .normalises = false};
    for (engine::RequestId id = 1; id <= 3; ++id) {
      work.requests.push_back({.id = id, .prompt = {1, 2}, .reads_state = true});
    }
    session_ = EmbedSession::Create(
        std::move(work),
        {.cancel = [this](engine::RequestId id, const absl::Status&) { cancelled_.push_back(id); },
         .finish =
             [this](absl::StatusOr<v1::EmbedResponse> response) {
               ++num_finished_;
               response_ = std::move(response);
             }},
        &pool_, {std::shared_ptr<const void>(), &model_});
    requests_ = session_->TakeRequests();
  }
  void Send(size_t input, std::vector<float> state, absl::Status ended) {
    engine::RequestEvent event;
    event.state = std::move(state);
    event.ended = std::move(ended);
    event.cached_prompt_tokens = 1;
    requests_[input].second(std::move(event));
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  WorkPool pool_{0};
  std::shared_ptr<EmbedSession> session_;
  std::vector<std::pair<engine::Request, engine::RequestSink>> requests_;
  std::vector<engine::RequestId> cancelled_;
  int num_finished_ = 0;
  absl::StatusOr<v1::EmbedResponse> response_ = absl::InternalError("none");
};

TEST_F(EmbedSessionTest, VectorsComeInTheOrderOfInputs) {
  Send(2, {5, 6}, absl::OkStatus());
  Send(0, {1, 2}, absl::OkStatus());
  EXPECT_EQ(num_finished_, 0);
  Send(1, {3, 4}, absl::OkStatus());
  ASSERT_TRUE(response_.ok()) << response_.status();
  ASSERT_EQ(response_->embeddings_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(response_->embeddings(i).values(), ElementsAre(2 * i + 1, 2 * i + 2));
  }
  EXPECT_EQ(response_->usage().prompt_tokens(), 6u);
  EXPECT_EQ(response_->usage().cached_prompt_tokens(), 3u);
  EXPECT_EQ(num_finished_, 1);
}

TEST_F(EmbedSessionTest, TheFirstFailureEndsTheOthers) {
  Send(1, {}, absl::DeadlineExceededError("late"));
  EXPECT_THAT(cancelled_, ElementsAre(1, 2, 3));
  Send(0, {}, absl::CancelledError("gone"));
  EXPECT_EQ(num_finished_, 0) << "the engine still has one";
  Send(2, {1, 2}, absl::OkStatus());
  EXPECT_EQ(response_.status().message(), "late");
  EXPECT_EQ(num_finished_, 1);
}

TEST_F(EmbedSessionTest, AnEndWithoutAStateIsAnError) {
  for (size_t i = 0; i < 3; ++i) Send(i, {}, absl::OkStatus());
  EXPECT_EQ(response_.status().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace continuo::server
