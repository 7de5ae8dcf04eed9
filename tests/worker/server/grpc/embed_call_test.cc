// SPDX-License-Identifier: Apache-2.0
// Embed of a whole worker over a fake executor.
#include <gmock/gmock.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "services/protocol/error.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "tests/worker/server/runtime/fake_adapter_loader.h"

namespace continuo::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EmbedCallTest : public WorkerServerTest {
 protected:
  // With the adapters of a folder, if there is one.
  void ServeEmbeddings(int64_t max_queued_tokens = 262144, FakeAdapterFolder* folder = nullptr) {
    server::ServedModel model = MakeServedModel(text_.get());
    model.max_context_tokens = 4000;
    model.embedding = *embedding::EmbeddingHead::Load("/nowhere", {}, kFakeStateSize);
    std::unique_ptr<FakeAdapterLoader> loader;
    if (folder != nullptr) loader = std::make_unique<FakeAdapterLoader>(folder, model);
    server_->Serve(
        std::move(model),
        {.num_blocks = 4096,
         .block_size = 4,
         .vocab_size = kVocab,
         .reads_states = true,
         .max_batch_tokens = 64,
         .max_queued_tokens = max_queued_tokens},
        &executor_, [](const absl::Status& status) { ADD_FAILURE() << status; }, {},
        std::move(loader));
  }

  static v1::EmbedRequest RequestOf(const std::vector<std::string>& texts) {
    v1::EmbedRequest request;
    for (const std::string& text : texts) request.add_inputs()->set_text(text);
    return request;
  }

  // One call that runs while the test goes on.
  struct Pending {
    grpc::ClientContext context;
    v1::EmbedRequest request;
    v1::EmbedResponse response;
    absl::Status status;
    absl::Notification done;
  };
  std::unique_ptr<Pending> Begin(v1::EmbedRequest request, absl::Duration timeout = absl::Hours(1),
                                 const std::map<std::string, std::string>& metadata = {}) {
    auto call = std::make_unique<Pending>();
    call->request = std::move(request);
    for (const auto& [key, value] : metadata) call->context.AddMetadata(key, value);
    call->context.set_wait_for_ready(true);
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    inference_->async()->Embed(&call->context, &call->request, &call->response,
                               [c = call.get()](const grpc::Status& status) {
                                 c->status = common::FromGrpcStatus(status);
                                 c->done.Notify();
                               });
    return call;
  }
  std::pair<absl::Status, v1::EmbedResponse> Embed(v1::EmbedRequest request) {
    const auto call = Begin(std::move(request));
    call->done.WaitForNotification();
    return {call->status, call->response};
  }
  // What the fake model leaves behind a text.
  static std::vector<float> StateOf(const std::string& text) {
    engine::Request request;
    for (const char c : text) request.prompt.push_back(static_cast<uint8_t>(c));
    return FakeState(request);
  }
};

TEST_F(EmbedCallTest, EachTextHasTheVectorThatItHasAlone) {
  ServeEmbeddings();
  std::vector<std::string> texts;
  for (int i = 0; i < 64; ++i) texts.push_back(absl::StrCat("text ", i, std::string(i % 50, 'x')));
  const auto [status, response] = Embed(RequestOf(texts));
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(response.embeddings_size(), 64);
  uint32_t tokens = 0;
  for (int i = 0; i < 64; ++i) {
    const auto& values = response.embeddings(i).values();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), StateOf(texts[i])) << i;
    const auto alone = Embed(RequestOf({texts[i]})).second;
    EXPECT_EQ(alone.embeddings(0).SerializeAsString(), response.embeddings(i).SerializeAsString());
    tokens += static_cast<uint32_t>(texts[i].size());
  }
  EXPECT_EQ(response.usage().prompt_tokens(), tokens);
  EXPECT_EQ(response.usage().completion_tokens(), 0u);
  EXPECT_EQ(response.fingerprint(), MakeServedModel(text_.get()).fingerprint);
  EXPECT_FALSE(response.fingerprint().empty());
  WaitUntilIdle();
}

// Beside those of other adapters, too, whose prefixes are others.
TEST_F(EmbedCallTest, AdaptersHaveVectorsOfTheirOwn) {
  server::ServedModel model = MakeServedModel(text_.get());
  model.max_context_tokens = 4000;
  model.embedding = *embedding::EmbeddingHead::Load("/nowhere", {}, kFakeStateSize);
  const std::vector<std::string> names = {"", "poet", "clerk"};
  std::vector<server::ServedModel> adapters;
  for (int32_t id = 0; id < 2; ++id) {
    server::ServedModel& adapter = adapters.emplace_back(model);
    adapter.name = adapter.adapter_digest = names[static_cast<size_t>(id) + 1];
    adapter.parent = model.name;
    adapter.adapter = id;
  }
  server_->Serve(
      std::move(model),
      {.num_blocks = 4096,
       .block_size = 4,
       .vocab_size = kVocab,
       .reads_states = true,
       .max_batch_tokens = 64,
       .calibrate = false},
      &executor_, [](const absl::Status& status) { ADD_FAILURE() << status; }, std::move(adapters));
  std::vector<std::string> texts;
  for (int i = 0; i < 20; ++i) texts.push_back(absl::StrCat("text ", i, std::string(i, 'x')));
  const auto request_of = [&](size_t name, const std::vector<std::string>& some) {
    v1::EmbedRequest request = RequestOf(some);
    request.set_model(names[name]);
    return request;
  };
  const auto check = [&](size_t name, size_t text, const v1::Embedding& got) {
    engine::Request request;
    for (const char c : texts[text]) request.prompt.push_back(static_cast<uint8_t>(c));
    request.adapter = static_cast<int32_t>(name) - 1;
    EXPECT_EQ(std::vector<float>(got.values().begin(), got.values().end()), FakeState(request))
        << names[name] << ", " << texts[text];
  };
  static_assert(model::kNoAdapter == -1);
  std::vector<std::unique_ptr<Pending>> calls;
  executor_.SetOpen(false);  // so that steps have rows of all
  for (size_t name = 0; name < names.size(); ++name) {
    calls.push_back(Begin(request_of(name, texts)));
  }
  WaitUntil([&] { return server_->runtime().registry.size() == names.size(); });
  executor_.SetOpen(true);
  for (size_t name = 0; name < names.size(); ++name) {
    Pending& call = *calls[name];
    call.done.WaitForNotification();
    ASSERT_TRUE(call.status.ok()) << call.status;
    for (size_t text = 0; text < texts.size(); ++text) {
      check(name, text, call.response.embeddings(static_cast<int>(text)));
    }
    const auto [status, alone] = Embed(request_of(name, {texts[19]}));
    ASSERT_TRUE(status.ok()) << status;
    check(name, 19, alone.embeddings(0));
  }
}

TEST_F(EmbedCallTest, PrefixesAreSharedAndTold) {
  ServeEmbeddings();
  const std::string text(41, 'p');
  EXPECT_EQ(Embed(RequestOf({text})).second.usage().cached_prompt_tokens(), 0u);
  EXPECT_EQ(Embed(RequestOf({text + "q"})).second.usage().cached_prompt_tokens(), 40u);
  v1::EmbedRequest apart = RequestOf({text});
  apart.mutable_cache()->set_bypass(true);
  EXPECT_EQ(Embed(apart).second.usage().cached_prompt_tokens(), 0u);
}

TEST_F(EmbedCallTest, AModelOfEmbeddingsGeneratesNothing) {
  ServeEmbeddings();
  EXPECT_EQ(Failure(BaseRequest()).code(), absl::StatusCode::kUnimplemented);
  grpc::ClientContext context;
  v1::GetModelResponse found;
  ASSERT_TRUE(inference_->GetModel(&context, {}, &found).ok());
  EXPECT_THAT(found.model().capabilities(), ElementsAre(v1::CAPABILITY_EMBED));
  EXPECT_EQ(found.model().embedding_dimensions(), static_cast<uint32_t>(kFakeStateSize));
}

TEST_F(EmbedCallTest, AModelThatGeneratesHasNoEmbeddings) {
  Serve();
  const absl::Status status = Embed(RequestOf({"a"})).first;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no embeddings"));
}

TEST_F(EmbedCallTest, BadRequestsNameTheField) {
  ServeEmbeddings();
  const absl::Status status = Embed({}).first;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "inputs");
  v1::EmbedRequest unknown = RequestOf({"a"});
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(999, 1);
  EXPECT_EQ(protocol::FieldOf(Embed(unknown).first), "999");
}

TEST_F(EmbedCallTest, ACallThatWaitsForItsAdapterIsALiveOne) {
  FakeAdapterFolder folder(1);
  folder.Set("poet", "P");
  folder.SetOpen(false);
  ServeEmbeddings(262144, &folder);
  const server::ServedAdapters& adapters = *server_->runtime().serving.get()->adapters;
  WaitUntil([&] { return adapters.Find("poet") != nullptr; });
  v1::EmbedRequest request = RequestOf({"a"});
  request.set_model("poet");
  request.set_request_id("one");
  const auto aborted = Begin(request);
  WaitUntil([&] { return adapters.num_waiting() == 1; });
  EXPECT_EQ(Embed(request).first.code(), absl::StatusCode::kAlreadyExists);
  v1::EmbedRequest bad = request;
  bad.clear_inputs();
  EXPECT_EQ(protocol::FieldOf(Embed(bad).first), "inputs");
  EXPECT_TRUE(Abort("one").aborted());
  aborted->done.WaitForNotification();
  EXPECT_EQ(aborted->status.code(), absl::StatusCode::kAborted);
  const auto read = Begin(request);
  WaitUntil([&] { return adapters.num_waiting() == 1; });
  folder.SetOpen(true);
  read->done.WaitForNotification();
  EXPECT_TRUE(read->status.ok()) << read->status;
  EXPECT_EQ(read->response.embeddings_size(), 1);
  server_->Shutdown();  // before the folder
}

TEST_F(EmbedCallTest, ItEndsByDeadlineCancelAbortAndDrain) {
  ServeEmbeddings();
  executor_.SetOpen(false);
  const auto late = Begin(RequestOf({"a", "b"}), absl::Milliseconds(50));
  late->done.WaitForNotification();
  EXPECT_EQ(late->status.code(), absl::StatusCode::kDeadlineExceeded);
  const auto left = Begin(RequestOf({"c"}));
  left->context.TryCancel();
  left->done.WaitForNotification();
  EXPECT_EQ(left->status.code(), absl::StatusCode::kCancelled);
  v1::EmbedRequest named = RequestOf({"d", "e"});
  named.set_request_id("one");
  const auto aborted = Begin(named);
  WaitUntil([&] { return Abort("one").aborted(); });
  executor_.SetOpen(true);
  aborted->done.WaitForNotification();
  EXPECT_EQ(aborted->status.code(), absl::StatusCode::kAborted);
  WaitUntilIdle();
  executor_.SetOpen(false);
  const auto drained = Begin(RequestOf({"f"}));
  v1::DrainResponse response;
  WaitUntil([&] { return Drain(absl::ZeroDuration(), &response).ok(); });
  executor_.SetOpen(true);
  drained->done.WaitForNotification();
  EXPECT_TRUE(drained->status.ok() ||
              protocol::ReasonOf(drained->status) == protocol::kReasonDraining)
      << drained->status;
}

TEST_F(EmbedCallTest, AnIdIsLiveOnce) {
  ServeEmbeddings();
  executor_.SetOpen(false);
  v1::EmbedRequest request = RequestOf({"a"});
  request.set_request_id("one");
  // Whichever comes first is live until the gate opens, so the other is refused.
  const std::unique_ptr<Pending> calls[] = {Begin(request), Begin(request)};
  WaitUntil([&] { return calls[0]->done.HasBeenNotified() || calls[1]->done.HasBeenNotified(); });
  const size_t refused = calls[0]->done.HasBeenNotified() ? 0 : 1;
  EXPECT_EQ(calls[refused]->status.code(), absl::StatusCode::kAlreadyExists);
  executor_.SetOpen(true);
  calls[1 - refused]->done.WaitForNotification();
  EXPECT_TRUE(calls[1 - refused]->status.ok()) << calls[1 - refused]->status;
}

TEST_F(EmbedCallTest, AMigrationTakesThePlaceOfTheCallThatRuns) {
  ServeEmbeddings();
  executor_.SetOpen(false);
  v1::EmbedRequest request = RequestOf({"a", "b"});
  request.set_request_id("one");
  const auto first = Begin(request);
  WaitUntil([&] { return server_->runtime().registry.size() == 1; });
  const auto live = server_->runtime().open_calls.All();
  ASSERT_EQ(live.size(), 1u);
  const auto second = Begin(request, absl::Hours(1), {{"x-continuo-move", "1"}});
  WaitUntil([&] { return live[0]->reason().has_value() || second->done.HasBeenNotified(); });
  executor_.SetOpen(true);
  second->done.WaitForNotification();
  ASSERT_TRUE(second->status.ok()) << second->status;
  const auto& values = second->response.embeddings(1).values();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()), StateOf("b"));
  first->done.WaitForNotification();
  // The engine may be done with it before it is told.
  if (!first->status.ok()) {
    EXPECT_EQ(first->status.code(), absl::StatusCode::kAborted) << first->status;
  }
}

TEST_F(EmbedCallTest, ACallWaitsWholeOrNotAtAll) {
  ServeEmbeddings(/*max_queued_tokens=*/20);
  executor_.SetOpen(false);
  // Whichever comes first waits until the gate opens. The other is refused, since its inputs count
  // together: one of them would fit.
  const std::unique_ptr<Pending> calls[] = {
      Begin(RequestOf({std::string(12, 'a')})),
      Begin(RequestOf({std::string(6, 'b'), std::string(6, 'c')}))};
  WaitUntil([&] { return calls[0]->done.HasBeenNotified() || calls[1]->done.HasBeenNotified(); });
  const size_t refused = calls[0]->done.HasBeenNotified() ? 0 : 1;
  EXPECT_EQ(protocol::ReasonOf(calls[refused]->status), protocol::kReasonOverloaded)
      << calls[refused]->status;
  executor_.SetOpen(true);
  calls[1 - refused]->done.WaitForNotification();
  EXPECT_TRUE(calls[1 - refused]->status.ok()) << calls[1 - refused]->status;
}

}  // namespace
}  // namespace continuo::testing
