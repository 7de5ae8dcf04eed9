// SPDX-License-Identifier: Apache-2.0
// A whole worker in this process, with a FakeExecutor for a model, through gRPC.
#include "services/worker/server/grpc/worker_server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/proto_time.h"
#include "services/worker/server/grpc/worker_metrics.h"
#include "services/worker/server/session/prompt.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "tests/worker/server/session/answer.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using testing::Answer;
using testing::AnswerOf;
using testing::kVocab;

using WorkerServerTest = testing::WorkerServerTest;

TEST_F(WorkerServerTest, RefusesWorkWhileItLoads) {
  const absl::Status status = Failure(BaseRequest());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(protocol::RetryDelayOf(status).has_value());
  grpc::ClientContext context;
  auto reader = worker_->WatchLoad(&context, v1::WatchLoadRequest());
  v1::WatchLoadResponse load;
  ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.state(), v1::WORKER_STATE_LOADING);
  EXPECT_EQ(load.fingerprint(), "");
  Serve();
  while (load.state() == v1::WORKER_STATE_LOADING) ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.state(), v1::WORKER_STATE_SERVING);
  EXPECT_EQ(load.fingerprint(), "F");
  EXPECT_EQ(load.total_kv_blocks(), 4096u);
  EXPECT_EQ(load.worker(), "w0");
  EXPECT_FALSE(load.incarnation().empty());
  context.TryCancel();
}

TEST_F(WorkerServerTest, StreamsTheModelsTokens) {
  Serve();
  v1::GenerateRequest request = BaseRequest();
  request.mutable_sampling()->set_num_sequences(2);
  const Answer answer = Generate(request);
  engine::Request engine;
  engine.prompt = *text_->Encode("hello world", true);
  engine.sampling.seed = 4;
  engine.max_tokens = 20;
  for (int i = 0; i < 2; ++i) {
    const std::vector<int32_t> want = FakeAnswer(engine, i, kVocab);
    EXPECT_THAT(answer.sequences.at(i).ids, ::testing::ElementsAreArray(want));
    EXPECT_EQ(answer.sequences.at(i).text, *text_->Decode(want, false));
  }
  EXPECT_EQ(answer.summary.usage().completion_tokens(), 40u);
}

TEST_F(WorkerServerTest, CollectHasOneResponseWithTheSame) {
  Serve();
  v1::GenerateRequest request = BaseRequest();
  request.mutable_output()->set_logprobs(2);
  request.mutable_output()->set_prompt_logprobs(1);
  request.set_request_id("r");
  const std::string streamed = Generate(request).Comparable();
  request.mutable_output()->set_collect(true);
  auto call = Start(request);
  ASSERT_TRUE(call->Finish().ok());
  ASSERT_EQ(call->responses.size(), 1u);
  EXPECT_EQ(AnswerOf(call->responses, true).Comparable(), streamed);
}

TEST_F(WorkerServerTest, CollectTellsInItsMetadataThatItHasBegun) {
  Serve();
  executor_.SetOpen(false);
  v1::GenerateRequest request = BaseRequest();
  request.mutable_output()->set_collect(true);
  auto call = std::make_unique<Call>();
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  call->reader = inference_->Generate(&call->context, request);
  call->reader->WaitForInitialMetadata();
  executor_.SetOpen(true);
  EXPECT_EQ(call->context.GetServerInitialMetadata().count("x-continuo-accepted"), 1u);
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_EQ(call->responses.size(), 1u);
}

TEST_F(WorkerServerTest, ARefusedCollectHasNotBegun) {
  Serve();
  v1::GenerateRequest request = BaseRequest(3900);
  request.mutable_sampling()->set_num_sequences(4);
  request.mutable_output()->set_logprobs(20);  // more than is collected
  request.mutable_output()->set_collect(true);
  auto call = Start(request);
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(call->context.GetServerInitialMetadata().count("x-continuo-accepted"), 0u);
}

TEST_F(WorkerServerTest, ProgressIsToldBeforeTheFirstToken) {
  Serve();
  executor_.SetOpen(false);
  v1::GenerateRequest request = BaseRequest();
  request.mutable_output()->set_progress(true);
  auto call = Start(request);
  v1::GenerateResponse first;
  ASSERT_TRUE(call->reader->Read(&first));
  EXPECT_TRUE(first.has_accepted());
  EXPECT_EQ(first.progress().prompt_tokens(), 2u);
  executor_.SetOpen(true);
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(WorkerServerTest, CancelFreesTheBlocks) {
  Serve();
  auto call = Start(BaseRequest(3900));
  ASSERT_TRUE(call->ReadToTokens());
  executor_.SetOpen(false);
  const auto live = server_->runtime().open_calls.All();
  ASSERT_EQ(live.size(), 1u);
  call->context.TryCancel();
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kCancelled);
  WaitUntil([&] { return live[0]->reason().has_value(); });
  EXPECT_EQ(live[0]->reason()->code(), absl::StatusCode::kCancelled);
  executor_.SetOpen(true);
  WaitUntilIdle();
}

TEST_F(WorkerServerTest, TheDeadlineEndsARequestThatWaits) {
  Serve();
  executor_.SetOpen(false);
  auto call = std::make_unique<Call>();
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  call->reader = inference_->Generate(&call->context, BaseRequest());
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kDeadlineExceeded);
  executor_.SetOpen(true);
  WaitUntilIdle();
}

TEST_F(WorkerServerTest, ALiveIdIsRefusedUnlessContinuedAndOnlyForItsTenant) {
  Serve();
  executor_.SetOpen(false);
  RequestRegistry& live = server_->runtime().registry;
  v1::GenerateRequest request = BaseRequest();
  request.set_request_id("twice");
  auto first = Start(request);
  WaitUntil([&] { return live.size() == 1; });
  EXPECT_EQ(Failure(request).code(), absl::StatusCode::kAlreadyExists);
  auto other_tenant = Start(request, {{"x-tenant-id", "other"}});
  WaitUntil([&] { return live.size() == 2; });

  // A client's continuation takes its place; a gateway's migration does not take that one's.
  request.mutable_continuation();
  const auto before = server_->runtime().open_calls.All();
  auto second = Start(request, {{"x-continuo-call", "second"}});
  WaitUntil([&] {
    return std::any_of(before.begin(), before.end(),
                       [](const auto& control) { return control->reason().has_value(); });
  });
  // Calls that have not reached the engine end at once.
  const auto later = server_->runtime().open_calls.All();
  std::set calls(before.begin(), before.end());
  calls.insert(later.begin(), later.end());
  EXPECT_EQ(Failure(request, {{"x-continuo-move", "1"}}).code(), absl::StatusCode::kAborted);
  // A migration of that very call takes its place.
  auto back = Start(request, {{"x-continuo-move", "1"}, {"x-continuo-call", "second"}});
  WaitUntil([&] {
    return std::ranges::count_if(
               calls, [](const auto& control) { return control->reason().has_value(); }) == 2;
  });
  executor_.SetOpen(true);
  EXPECT_EQ(first->Finish().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(second->Finish().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(back->Finish().ok());
  EXPECT_TRUE(other_tenant->Finish().ok());
}

TEST_F(WorkerServerTest, AbortEndsOneRequest) {
  Serve();
  executor_.SetOpen(false);
  v1::GenerateRequest request = BaseRequest();
  request.set_request_id("one");
  request.mutable_output()->set_progress(true);
  auto call = Start(request);
  v1::GenerateResponse response;
  ASSERT_TRUE(call->reader->Read(&response));
  EXPECT_TRUE(Abort("one").aborted());
  executor_.SetOpen(true);
  const absl::Status status = call->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonAborted);
  EXPECT_FALSE(Abort("one").aborted());
}

TEST_F(WorkerServerTest, DrainFlushesAndHandsOverWhatTheNextWorkerGoesOnWith) {
  Serve();
  v1::GenerateRequest request = BaseRequest(3900);
  request.set_request_id("migrated");
  auto call = Start(request);
  ASSERT_TRUE(call->ReadToTokens());
  executor_.SetOpen(false);
  const auto live = server_->runtime().open_calls.All();
  ASSERT_EQ(live.size(), 1u);
  // The load is published after a step's tokens.
  const WorkerRuntime& runtime = server_->runtime();
  WaitUntil([&] { return runtime.serving.get()->engine->Load().running == 1; });
  v1::DrainResponse drained;
  ASSERT_TRUE(Drain(absl::ZeroDuration(), &drained).ok());
  EXPECT_EQ(drained.running_requests(), 1u);
  const absl::Status refused = Failure(BaseRequest());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonDraining);
  WaitUntil([&] { return live[0]->reason().has_value(); });
  executor_.SetOpen(true);
  const absl::Status ended = call->Finish();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(ended), protocol::kReasonDraining);
  EXPECT_FALSE(AnswerOf(call->responses).has_summary);
  WaitUntil([&] { return server_->drained(); });

  // Another worker of the same fingerprint gives the rest.
  v1::GenerateResponse& received = *request.mutable_continuation()->mutable_received();
  for (const auto& response : call->responses) received.MergeFrom(response);
  testing::SessionHarness other;
  other.model().max_context_tokens = 4000;
  request.mutable_stopping()->set_max_tokens(AnswerOf(call->responses).sequences.at(0).ids.size() +
                                             8);
  Answer joined = AnswerOf(call->responses);
  for (const auto& response : other.Run(request).responses) joined.Add(response);
  request.clear_continuation();
  EXPECT_EQ(joined.Comparable(), AnswerOf(other.Run(request).responses).Comparable());
}

TEST_F(WorkerServerTest, DrainAboveItsLimitIsRefused) {
  Serve();
  v1::DrainResponse response;
  const absl::Status status = Drain(absl::Seconds(30) + absl::Nanoseconds(1), &response);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "grace");
  EXPECT_TRUE(Drain(absl::Seconds(30), &response).ok());
}

TEST_F(WorkerServerTest, AFullQueueIsOverloadWithARetryHint) {
  ServedModel model = testing::MakeServedModel(text_.get());
  model.max_context_tokens = 4000;
  server_->Serve(std::move(model),
                 {.num_blocks = 4096,
                  .block_size = 4,
                  .vocab_size = kVocab,
                  .max_running = 1,
                  .max_queued_tokens = 35,
                  .calibrate = false},
                 &executor_, [](const absl::Status& status) { ADD_FAILURE() << status; });
  executor_.SetOpen(false);
  v1::GenerateRequest request = BaseRequest();
  for (int i = 0; i < 15; ++i) request.mutable_token_ids()->add_ids(i);
  const WorkerRuntime& runtime = server_->runtime();
  const auto num_refused = [&] {
    return runtime.counters.num_ended(absl::StatusCode::kResourceExhausted);
  };
  std::vector<std::unique_ptr<Call>> calls;
  while (num_refused() == 0) {
    ASSERT_LT(calls.size(), 5u) << "the queue has no bound";
    calls.push_back(Start(request));
    WaitUntil([&] {
      const engine::EngineLoad load = runtime.serving.get()->engine->Load();
      return load.running + load.waiting == static_cast<int>(calls.size()) || num_refused() > 0;
    });
  }
  const absl::Status refused = calls.back()->Finish();
  calls.pop_back();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(protocol::ReasonOf(refused), protocol::kReasonOverloaded);
  EXPECT_TRUE(protocol::RetryDelayOf(refused).has_value());
  executor_.SetOpen(true);
  for (auto& call : calls) EXPECT_TRUE(call->Finish().ok());
}

TEST_F(WorkerServerTest, TokenizeAndDetokenizeAreInverse) {
  Serve();
  grpc::ClientContext first, second, third;
  v1::TokenizeRequest request;
  request.set_text("hello world");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(inference_->Tokenize(&first, request, &tokens).ok());
  EXPECT_EQ(tokens.rendered_prompt(), "hello world");
  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(inference_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), "hello world");
  back.add_token_ids(kVocab);
  const absl::Status status = common::FromGrpcStatus(inference_->Detokenize(&third, back, &text));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WorkerServerTest, TokensAndTheTokenizerAreTold) {
  Serve();
  grpc::ClientContext first, second, third;
  v1::TokenizeRequest request;
  request.set_text("a b<|end|>");
  request.set_return_tokens(true);
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(inference_->Tokenize(&first, request, &tokens).ok());
  ASSERT_EQ(tokens.tokens_size(), tokens.token_ids_size());
  // A space is written in the way of byte-level vocabularies.
  EXPECT_EQ(absl::StrJoin(tokens.tokens(), ""),
            "a\xc4\xa0"
            "b<|end|>");
  EXPECT_EQ(tokens.tokens().rbegin()[0], "<|end|>");
  EXPECT_GT(tokens.max_context_tokens(), 0);
  v1::GetTokenizerRequest info_request;
  v1::GetTokenizerResponse info;
  ASSERT_TRUE(inference_->GetTokenizer(&second, info_request, &info).ok());
  EXPECT_EQ(nlohmann::json::parse(info.config())["eos_token"], "<|end|>");
  info_request.set_model("nobody");
  EXPECT_EQ(inference_->GetTokenizer(&third, info_request, &info).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(WorkerServerTest, TextTooLongToTokenizeIsRefusedUnread) {
  Serve();
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(std::string(protocol::kMaxTokenizeBytes + 1, 'a'));
  v1::TokenizeResponse response;
  const absl::Status status =
      common::FromGrpcStatus(inference_->Tokenize(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "text");
}

TEST_F(WorkerServerTest, TextCallsBeyondTheirBudgetAreOverload) {
  Serve();
  // No work is done while the pool's threads are held.
  absl::Notification go_on;
  for (int i = 0; i < WorkerServerOptions().text_threads; ++i) {
    server_->runtime().text_pool.Post([&] { go_on.WaitForNotification(); });
  }
  struct TextCall {
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    absl::Status status;
    absl::Notification done;
  };
  v1::TokenizeRequest request;
  request.set_text(std::string(protocol::kMaxTokenizeBytes, 'a'));
  constexpr size_t kCalls = WorkerRuntime::kMaxTextCallBytes / protocol::kMaxTokenizeBytes;
  std::array<TextCall, kCalls + 1> calls;
  for (TextCall& call : calls) {
    inference_->async()->Tokenize(&call.context, &request, &call.response,
                                  [&call](const grpc::Status& status) {
                                    call.status = common::FromGrpcStatus(status);
                                    call.done.Notify();
                                  });
  }
  const auto num_done = [&] {
    return std::count_if(calls.begin(), calls.end(),
                         [](const TextCall& call) { return call.done.HasBeenNotified(); });
  };
  WaitUntil([&] { return num_done() > 0; });
  for (const TextCall& call : calls) {
    if (!call.done.HasBeenNotified()) continue;
    EXPECT_EQ(call.status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(protocol::ReasonOf(call.status), protocol::kReasonOverloaded);
    EXPECT_TRUE(protocol::RetryDelayOf(call.status).has_value());
  }
  go_on.Notify();
  for (TextCall& call : calls) call.done.WaitForNotification();
  grpc::ClientContext context;
  request.set_text("a");
  v1::TokenizeResponse response;
  EXPECT_TRUE(inference_->Tokenize(&context, request, &response).ok());
}

TEST_F(WorkerServerTest, RequestsThatNeedNoLengthHaveNone) {
  Serve();
  grpc::ClientContext first, second;
  v1::GetModelRequest request;
  request.set_name(std::string(100'000, 'a'));
  v1::GetModelResponse response;
  EXPECT_EQ(inference_->GetModel(&first, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::EmbedResponse embedded;
  EXPECT_EQ(inference_->Embed(&second, {}, &embedded).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(WorkerServerTest, TellsOfItsModel) {
  Serve();
  grpc::ClientContext first, second, third;
  v1::ListModelsResponse list;
  ASSERT_TRUE(inference_->ListModels(&first, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  EXPECT_EQ(list.models(0).name(), "bytes");
  EXPECT_EQ(list.models(0).num_workers(), 1u);
  v1::GetModelResponse got;
  ASSERT_TRUE(inference_->GetModel(&second, {}, &got).ok());
  v1::GetModelRequest other;
  other.set_name("other");
  EXPECT_EQ(inference_->GetModel(&third, other, &got).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(WorkerServerTest, BytesThatAreNoMessageAreInvalid) {
  Serve();
  v1::GenerateRequest request = BaseRequest();
  request.set_text("XX");
  std::string bytes = request.SerializeAsString();
  bytes.replace(bytes.find("XX"), 2, "\xC3(");
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer buffer(&slice, 1);
  auto channel = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(&context, "/continuo.v1.InferenceService/Generate", &queue);
  call->StartCall(nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  call->WriteLast(buffer, {}, nullptr);
  queue.Next(&tag, &ok);
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(protocol::FieldOf(common::FromGrpcStatus(status)), "text");
}

TEST_F(WorkerServerTest, WatchIntervalsAreChecked) {
  Serve();
  const auto refused = [&](int64_t min_ms, int64_t max_ms) {
    grpc::ClientContext context;
    v1::WatchLoadRequest request;
    *request.mutable_min_interval() = protocol::ToProto(absl::Milliseconds(min_ms));
    *request.mutable_max_interval() = protocol::ToProto(absl::Milliseconds(max_ms));
    auto reader = worker_->WatchLoad(&context, request);
    v1::WatchLoadResponse load;
    EXPECT_FALSE(reader->Read(&load));
    return common::FromGrpcStatus(reader->Finish());
  };
  EXPECT_EQ(protocol::FieldOf(refused(-1, 5)), "min_interval");
  EXPECT_EQ(protocol::FieldOf(refused(0, -5)), "max_interval");
  EXPECT_EQ(protocol::FieldOf(refused(9, 5)), "min_interval");
}

TEST_F(WorkerServerTest, TheNamesOfTheMetricsAreFrozen) {
  const std::set<std::string> names = {"continuo_running_requests",
                                       "continuo_waiting_requests",
                                       "continuo_waiting_prompt_tokens",
                                       "continuo_kv_blocks_used",
                                       "continuo_kv_blocks_cached",
                                       "continuo_kv_blocks_total",
                                       "continuo_kv_blocks_unaccounted",
                                       "continuo_state_slots_used",
                                       "continuo_state_slots_kept",
                                       "continuo_state_slots_total",
                                       "continuo_step_seconds",
                                       "continuo_token_seconds_total",
                                       "continuo_step_rows",
                                       "continuo_prompt_tokens_total",
                                       "continuo_generated_tokens_total",
                                       "continuo_preemptions_total",
                                       "continuo_prefix_cache_queried_tokens_total",
                                       "continuo_prefix_cache_hit_tokens_total",
                                       "continuo_grammar_compiles_total",
                                       "continuo_grammar_refusals_total",
                                       "continuo_grammar_cache_hits_total",
                                       "continuo_grammar_compile_seconds_total",
                                       "continuo_draft_tokens_total",
                                       "continuo_accepted_draft_tokens_total",
                                       "continuo_constrained_samples_total",
                                       "continuo_mask_seconds",
                                       "continuo_requests_total",
                                       "continuo_queue_seconds",
                                       "continuo_time_to_first_token_seconds",
                                       "continuo_inter_token_seconds",
                                       "continuo_request_seconds",
                                       "continuo_build_info",
                                       "continuo_spans_dropped_total",
                                       "continuo_refused_peers_total",
                                       "process_cpu_seconds_total",
                                       "process_max_fds",
                                       "process_open_fds",
                                       "process_resident_memory_bytes",
                                       "process_start_time_seconds",
                                       "process_virtual_memory_bytes",
                                       "vllm:num_requests_running",
                                       "vllm:num_requests_waiting",
                                       "vllm:kv_cache_usage_perc",
                                       "vllm:cache_config_info",
                                       "vllm:time_to_first_token_seconds",
                                       "vllm:inter_token_latency_seconds",
                                       "vllm:e2e_request_latency_seconds",
                                       "vllm:request_queue_time_seconds",
                                       "vllm:prompt_tokens_total",
                                       "vllm:generation_tokens_total",
                                       "vllm:num_preemptions_total",
                                       "vllm:prefix_cache_queries_total",
                                       "vllm:spec_decode_num_draft_tokens_total",
                                       "vllm:spec_decode_num_accepted_tokens_total",
                                       "vllm:prefix_cache_hits_total"};
  const auto peers = *common::PeerCheck::Open({});
  const auto collect = [&] {
    common::MetricFamilies families;
    const WorkerRuntime& runtime = server_->runtime();
    CollectWorkerMetrics(server_->metrics(), runtime.counters, runtime.identity,
                         runtime.serving.get(), nullptr, *peers, families);
    return families;
  };
  std::set<std::string> found;
  for (const auto& family : collect()) found.insert(family.name);
  EXPECT_EQ(found, names) << "before the model is loaded";
  Serve();
  Generate(BaseRequest());
  WaitUntilIdle();
  found.clear();
  double ok_requests = 0, generated = 0;
  for (const auto& family : collect()) {
    found.insert(family.name);
    for (const auto& metric : family.metric) {
      if (family.name == "continuo_generated_tokens_total") generated = metric.counter.value;
      if (family.name != "continuo_requests_total") continue;
      for (const auto& label : metric.label) {
        if (label.name == "code" && label.value == "OK") ok_requests = metric.counter.value;
      }
    }
  }
  EXPECT_EQ(found, names);
  EXPECT_EQ(ok_requests, 1);
  EXPECT_EQ(generated, 20);
}

TEST_F(WorkerServerTest, BadMetadataIsRefusedByName) {
  Serve();
  const absl::Status status = Failure(BaseRequest(), {{"x-request-id", std::string(129, 'x')}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(protocol::FieldOf(status), "x-request-id");
}

TEST_F(WorkerServerTest, ManyStreamsAtOnceAreEachAsAlone) {
  Serve();
  std::vector<std::string> alone;
  constexpr int kStreams = 24;
  const auto request_of = [](int i) {
    v1::GenerateRequest request = BaseRequest(40);
    request.set_request_id(std::to_string(i));
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(i));
    return request;
  };
  for (int i = 0; i < kStreams; ++i) alone.push_back(Generate(request_of(i)).Comparable());
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kStreams; ++i) calls.push_back(Start(request_of(i)));
  for (int i = 0; i < kStreams; ++i) {
    EXPECT_TRUE(calls[i]->Finish().ok());
    EXPECT_EQ(AnswerOf(calls[i]->responses).Comparable(), alone[i]);
  }
}

// The callback may take a while to find out why.
TEST_F(WorkerServerTest, StreamsHaveEndedWhenAFailureIsTold) {
  absl::Notification ended;
  absl::Status told;
  Serve([&](const absl::Status& status) {
    ended.WaitForNotification();
    told = status;
  });
  auto call = Start(BaseRequest(3900));
  ASSERT_TRUE(call->ReadToTokens());
  executor_.SetOpen(false);
  fake_.FailWith(absl::InternalError("cuda:0: lost"));
  executor_.SetOpen(true);
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kUnavailable);
  ended.Notify();
  server_->Shutdown();
  server_.reset();
  EXPECT_THAT(std::string(told.message()), ::testing::HasSubstr("cuda:0: lost"));
}

}  // namespace
}  // namespace continuo::server
