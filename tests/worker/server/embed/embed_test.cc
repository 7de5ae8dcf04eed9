// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/embed/embed_session.h"
#include "services/worker/server/session/validate.h"
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
        &pool_, &model_);
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
