// SPDX-License-Identifier: Apache-2.0
// LoRA adapters as models of their own: named by requests, listed, reported, and kept apart in
// cache and fingerprint.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker/server/grpc/worker_server_harness.h"

namespace continuo::server {
namespace {

using testing::Answer;
using ::testing::ElementsAre;
using testing::kVocab;

class AdaptersTest : public testing::WorkerServerTest {
 protected:
  AdaptersTest() : WorkerServerTest({.adapter_names = {"poet", "pirate"}}) {}

  void ServeAdapters() {
    ServedModel base = testing::MakeServedModel(text_.get());
    base.max_context_tokens = 4000;
    std::vector<ServedModel> adapters;
    int32_t id = 0;
    for (const char* name : {"poet", "pirate"}) {
      ServedModel& adapter = adapters.emplace_back(base);
      adapter.name = name;
      adapter.parent = base.name;
      adapter.fingerprint = std::string("F/") + name;
      adapter.adapter_digest = name;
      adapter.adapter = id++;
    }
    server_->Serve(
        std::move(base),
        {.num_blocks = 4096, .block_size = 4, .vocab_size = kVocab, .calibrate = false}, &executor_,
        [](const absl::Status& status) { ADD_FAILURE() << status; }, std::move(adapters));
  }
  Answer GenerateBy(const std::string& model) {
    v1::GenerateRequest request = BaseRequest();
    request.set_model(model);
    return Generate(request);
  }
};

TEST_F(AdaptersTest, RequestsNameThem) {
  ServeAdapters();
  const Answer base = GenerateBy("bytes"), poet = GenerateBy("poet"), pirate = GenerateBy("pirate");
  EXPECT_EQ(GenerateBy("").sequences.at(0).ids, base.sequences.at(0).ids);
  EXPECT_NE(poet.sequences.at(0).ids, base.sequences.at(0).ids);
  EXPECT_NE(poet.sequences.at(0).ids, pirate.sequences.at(0).ids);
  EXPECT_EQ(poet.accepted.model(), "poet");
  EXPECT_EQ(poet.accepted.fingerprint(), "F/poet");
  EXPECT_EQ(base.accepted.fingerprint(), "F");
  // The same prompt was in the cache by then, of others.
  EXPECT_EQ(GenerateBy("poet").sequences.at(0).ids, poet.sequences.at(0).ids);
  v1::GenerateRequest request = BaseRequest();
  request.set_model("singer");
  EXPECT_EQ(Failure(request).code(), absl::StatusCode::kNotFound);
}

TEST_F(AdaptersTest, PrefixesAreThoseOfTheAdapter) {
  ServeAdapters();
  v1::GenerateRequest request = BaseRequest();
  request.set_text("a prompt that fills some blocks of four tokens each");
  const auto cached = [&](const std::string& model) {
    request.set_model(model);
    return Generate(request).summary.usage().cached_prompt_tokens();
  };
  for (const char* model : {"bytes", "poet", "pirate"}) EXPECT_EQ(cached(model), 0u) << model;
  for (const char* model : {"bytes", "poet", "pirate"}) EXPECT_GT(cached(model), 0u) << model;
}

TEST_F(AdaptersTest, AContinuationGoesOnWithItsAdapter) {
  ServeAdapters();
  v1::GenerateRequest request = BaseRequest();
  request.set_model("poet");
  const Answer whole = Generate(request);
  const std::vector<uint32_t>& all = whole.sequences.at(0).ids;
  constexpr int kReceived = 5;
  v1::GenerateResponse received;
  *received.mutable_accepted() = whole.accepted;
  v1::Delta& delta = *received.add_deltas();
  delta.mutable_token_ids()->Add(all.begin(), all.begin() + kReceived);
  const auto go_on = [&](const std::string& model) {
    v1::GenerateRequest next = request;
    next.set_model(model);
    *next.mutable_continuation()->mutable_received() = received;
    auto resumed = Start(next);
    EXPECT_TRUE(resumed->Finish().ok());
    Answer rest;
    rest.next_sequence = received.sequence() + 1;
    for (const v1::GenerateResponse& response : resumed->responses) rest.Add(response);
    return rest;
  };
  for (const std::string model : {"poet", ""}) {
    const Answer rest = go_on(model);
    EXPECT_FALSE(rest.accepted.inexact()) << model;
    const std::vector<uint32_t> expected(all.begin() + kReceived, all.end());
    EXPECT_EQ(rest.sequences.at(0).ids, expected) << model;
  }
  EXPECT_TRUE(go_on("bytes").accepted.inexact());
  v1::GenerateRequest exact = request;
  exact.set_model("bytes");
  exact.set_exact_only(true);
  *exact.mutable_continuation()->mutable_received() = received;
  EXPECT_EQ(Failure(exact).code(), absl::StatusCode::kUnavailable);
}

TEST_F(AdaptersTest, AContinuationWithoutAModelIsOfItsAdapterAlone) {
  ServeAdapters();
  v1::GenerateRequest request = BaseRequest();
  *request.mutable_continuation()->mutable_received()->mutable_accepted() =
      GenerateBy("poet").accepted;
  request.mutable_continuation()->mutable_received()->mutable_accepted()->set_model("singer");
  EXPECT_EQ(Failure(request).code(), absl::StatusCode::kNotFound) << "the base model is another";
}

// A gateway that begins meanwhile knows the names, so that their requests wait.
TEST_F(AdaptersTest, TheyAreReportedWhileTheModelLoads) {
  grpc::ClientContext context;
  auto reader = worker_->WatchLoad(&context, {});
  v1::WatchLoadResponse load;
  ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.state(), v1::WORKER_STATE_LOADING);
  ASSERT_EQ(load.adapters_size(), 2);
  EXPECT_EQ(load.adapters(0).model(), "pirate");
  EXPECT_EQ(load.adapters(0).fingerprint(), "");
  EXPECT_EQ(load.adapters(1).model(), "poet");
  context.TryCancel();
}

TEST_F(AdaptersTest, TheyAreListedAndReported) {
  ServeAdapters();
  v1::ListModelsResponse list;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(inference_->ListModels(&context, {}, &list).ok());
  }
  std::vector<std::string> names, parents;
  for (const v1::Model& model : list.models()) {
    names.push_back(model.name());
    parents.push_back(model.parent());
  }
  EXPECT_THAT(names, ElementsAre("bytes", "pirate", "poet"));
  EXPECT_THAT(parents, ElementsAre("", "bytes", "bytes"));
  {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    request.set_name("poet");
    v1::GetModelResponse found;
    ASSERT_TRUE(inference_->GetModel(&context, request, &found).ok());
    EXPECT_EQ(found.model().parent(), "bytes");
    EXPECT_THAT(found.model().fingerprints(), ElementsAre("F/poet"));
  }
  {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_model("poet");
    request.set_text("hello");
    v1::TokenizeResponse tokens;
    EXPECT_TRUE(inference_->Tokenize(&context, request, &tokens).ok());
  }
  grpc::ClientContext context;
  v1::WatchLoadRequest request;
  request.set_accepts_deltas(true);
  auto reader = worker_->WatchLoad(&context, request);
  v1::WatchLoadResponse load;
  ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.model(), "bytes");
  ASSERT_EQ(load.adapters_size(), 2);
  EXPECT_EQ(load.adapters(0).model(), "pirate");
  EXPECT_EQ(load.adapters(0).fingerprint(), "F/pirate");
  EXPECT_EQ(load.adapters(1).model(), "poet");
  context.TryCancel();
}

}  // namespace
}  // namespace continuo::server
