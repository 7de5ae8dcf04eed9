// SPDX-License-Identifier: Apache-2.0
// A worker whose client stops reading: HTTP/2's flow control holds the stream, and with it every
// status, for as long as the client likes.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "services/protocol/error.h"
#include "tests/worker/server/grpc/worker_server_harness.h"

namespace continuo::server {
namespace {

class StalledReaderTest : public testing::WorkerServerTest {
 protected:
  StalledReaderTest() : WorkerServerTest({.end_patience = absl::Milliseconds(50)}) {
    Serve();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays as it is: 64 KiB
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::InferenceService::NewStub(grpc::CreateCustomChannel(
        server_->address(), grpc::InsecureChannelCredentials(), arguments));
  }

  // The request has some megabytes of answer, which are generated and not read.
  static v1::GenerateRequest LargeRequest() {
    v1::GenerateRequest request = BaseRequest(2000);
    request.set_request_id("large");
    request.mutable_sampling()->set_num_sequences(4);
    request.mutable_output()->set_logprobs(20);
    return request;
  }
  std::unique_ptr<Call> StartStalled() {
    auto call = Start(LargeRequest(), {}, stub_.get());
    WaitUntil([&] { return server_->runtime().registry.size() == 1; });
    WaitUntilIdle();
    return call;
  }
  void WaitUntilAllHasEnded() {
    WaitUntil([&] { return server_->runtime().open_calls.size() == 0; });
    EXPECT_EQ(server_->runtime().registry.size(), 0u);
  }

  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(StalledReaderTest, GetsTheWholeAnswerWhenItReadsOn) {
  auto call = StartStalled();
  EXPECT_EQ(server_->runtime().open_calls.size(), 1u) << "the answer was to be too large to send";
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_TRUE(testing::AnswerOf(call->responses).has_summary);
}

TEST_F(StalledReaderTest, AbortEndsItsCall) {
  auto call = StartStalled();
  EXPECT_TRUE(Abort("large").aborted());
  WaitUntilAllHasEnded();
  EXPECT_EQ(server_->runtime().counters.num_ended(absl::StatusCode::kAborted), 1u);
  const absl::Status status = call->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonAborted);
  EXPECT_EQ(status.message(), "aborted by an operator");
}

TEST_F(StalledReaderTest, AContinuationTakesItsPlace) {
  auto call = StartStalled();
  v1::GenerateRequest request = LargeRequest();
  request.mutable_continuation();
  auto second = Start(request);
  EXPECT_TRUE(second->Finish().ok());
  WaitUntilAllHasEnded();
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kAborted);
}

TEST_F(StalledReaderTest, ADrainEnds) {
  auto call = StartStalled();
  v1::DrainResponse drained;
  ASSERT_TRUE(Drain(absl::ZeroDuration(), &drained).ok());
  WaitUntil([&] { return server_->drained(); });
  WaitUntilAllHasEnded();
  EXPECT_EQ(server_->runtime().counters.num_ended(absl::StatusCode::kUnavailable), 1u);
  const absl::Status status = call->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonDraining);
}

TEST_F(StalledReaderTest, ShutdownEnds) {
  auto call = StartStalled();
  server_->Shutdown();
  WaitUntilAllHasEnded();
  EXPECT_FALSE(call->Finish().ok());
}

}  // namespace
}  // namespace continuo::server
