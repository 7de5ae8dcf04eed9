// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/watch_steps_call.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "services/protocol/proto_time.h"
#include "services/worker/server/session/convert.h"
#include "tests/worker/server/grpc/worker_server_harness.h"

namespace continuo::server {
namespace {

using WatchStepsTest = testing::WorkerServerTest;

// One stream of WatchSteps.
struct Watcher {
  Watcher(v1::WorkerService::Stub& stub, absl::Duration interval) {
    v1::WatchStepsRequest request;
    *request.mutable_min_interval() = protocol::ToProto(interval);
    reader = stub.WatchSteps(&context, request);
  }
  absl::Status Refusal() {
    v1::WatchStepsResponse response;
    EXPECT_FALSE(reader->Read(&response));
    return common::FromGrpcStatus(reader->Finish());
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::WatchStepsResponse>> reader;
};

TEST_F(WatchStepsTest, TellsWhatEachStepRanForARequest) {
  Serve();
  Watcher watcher(*worker_, absl::Milliseconds(1));
  watcher.reader->WaitForInitialMetadata();
  v1::GenerateRequest request = BaseRequest(20);
  request.set_request_id("mine");
  Generate(request);
  std::vector<v1::StepSequence> rows;
  uint64_t last = 0;
  v1::WatchStepsResponse response;
  while (rows.empty() || rows.back().finish_reason() == v1::FINISH_REASON_UNSPECIFIED) {
    ASSERT_TRUE(watcher.reader->Read(&response));
    EXPECT_EQ(response.num_dropped(), 0u);
    for (const v1::Step& step : response.steps()) {
      EXPECT_GT(step.number(), last);
      last = step.number();
      EXPECT_TRUE(step.has_start_time());
      EXPECT_TRUE(step.has_duration());
      rows.insert(rows.end(), step.sequences().begin(), step.sequences().end());
    }
  }
  ASSERT_EQ(rows.size(), 20u);  // the first one prefills the prompt and samples
  EXPECT_EQ(rows[0].cached_tokens(), 0u);
  EXPECT_EQ(rows[0].new_tokens(), rows[0].prompt_tokens());
  for (uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(rows[i].request_id(), "mine");
    EXPECT_EQ(rows[i].generated_tokens(), i + 1);
  }
  EXPECT_EQ(rows[19].finish_reason(), v1::FINISH_REASON_LENGTH);
  watcher.context.TryCancel();
}

TEST_F(WatchStepsTest, EndsWhileTheModelIsLoaded) {
  EXPECT_EQ(Watcher(*worker_, absl::Milliseconds(1)).Refusal().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(WatchStepsTest, IntervalsAreChecked) {
  Serve();
  for (const absl::Duration bad : {-absl::Milliseconds(1), absl::Hours(2)}) {
    EXPECT_EQ(protocol::FieldOf(Watcher(*worker_, bad).Refusal()), "min_interval");
  }
}

TEST_F(WatchStepsTest, AWatcherWhoLeavesStopsTheLog) {
  Serve();
  engine::StepLog& log = server_->runtime().serving.get()->engine->step_log();
  Watcher watcher(*worker_, absl::Hours(1));
  watcher.reader->WaitForInitialMetadata();
  EXPECT_TRUE(log.watched());
  watcher.context.TryCancel();
  WaitUntil([&] { return !log.watched(); });
}

TEST_F(WatchStepsTest, AWatcherDoesNotOutliveTheWorker) {
  Serve();
  Watcher watcher(*worker_, absl::Milliseconds(1));
  watcher.reader->WaitForInitialMetadata();
  server_->Shutdown();
  EXPECT_EQ(watcher.Refusal().code(), absl::StatusCode::kUnavailable);
}

// AddressSanitizer checks this: gRPC calls back for a cancelled alarm at any time, also after the
// end.
TEST_F(WatchStepsTest, WatchersWhoAreThereAtTheEndAreReleasedAndTouchNothing) {
  Serve();
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (int i = 0; i < 300; ++i) {
    watchers.push_back(std::make_unique<Watcher>(*worker_, absl::Hours(1)));
  }
  for (const auto& watcher : watchers) watcher->reader->WaitForInitialMetadata();
  server_.reset();
  for (const auto& watcher : watchers) EXPECT_FALSE(watcher->Refusal().ok());
}

TEST(NextStepsTest, AResponseIsNoLargerThanAMebibyteAndTheRestFollows) {
  engine::StepLog log;
  engine::StepLog::Watch watch(&log);
  constexpr int kSteps = 20;
  for (int i = 1; i <= kSteps; ++i) {
    engine::StepRecord record;
    record.number = i;
    record.sequences.resize(1000, {.label = std::string(100, 'x'), .prompt_tokens = 5});
    log.Add(std::move(record));
  }
  int next = 1, num_responses = 0;
  for (v1::WatchStepsResponse response; NextSteps(watch, response); response.Clear()) {
    ++num_responses;
    EXPECT_LE(response.ByteSizeLong(), (1u << 20) + 16);
    for (const v1::Step& step : response.steps()) EXPECT_EQ(step.number(), next++);
  }
  EXPECT_EQ(next, kSteps + 1);
  EXPECT_GT(num_responses, 1);
}

TEST(NextStepsTest, AStepLargerThanAResponseMayBeIsSentAlone) {
  engine::StepLog log;
  engine::StepLog::Watch watch(&log);
  for (int i = 0; i < 2; ++i) {
    engine::StepRecord record;
    record.sequences.resize(10000, {.label = std::string(128, 'x')});
    log.Add(std::move(record));
  }
  v1::WatchStepsResponse response;
  ASSERT_TRUE(NextSteps(watch, response));
  EXPECT_EQ(response.steps_size(), 1);
}

TEST(NextStepsTest, WhatASlowWatcherLostIsCounted) {
  engine::StepLog log;
  engine::StepLog::Watch watch(&log);
  for (size_t i = 0; i < engine::StepLog::kMaxSteps + 7; ++i) log.Add({});
  v1::WatchStepsResponse response;
  ASSERT_TRUE(NextSteps(watch, response));
  EXPECT_EQ(response.num_dropped(), 7u);
  EXPECT_FALSE(NextSteps(watch, response));
}

}  // namespace
}  // namespace continuo::server
