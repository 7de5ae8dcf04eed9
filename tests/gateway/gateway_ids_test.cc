// SPDX-License-Identifier: Apache-2.0
// Tests of request ids that several calls of one gateway have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>

#include "services/protocol/error.h"
#include "tests/gateway/gateway_fixture.h"

namespace continuo::gateway {
namespace {

class GatewayIdsTest : public GatewayTest {
 protected:
  // Starts two workers and a call of the id "one" that stays open until `release_` or its end.
  void StartHeld(GatewayConfig config = {}) {
    AddWorkers(2);
    StartGateway(std::move(config));
    WaitForWorkers(2);
    for (const auto& worker : workers_) {
      worker->SetScript([this](const FakeWorker::Call& call, int response) {
        const bool is_held = !call.request.has_continuation() && response == 2 &&
                             call.metadata.find("x-request-id")->second == "one";
        while (is_held && !release_.HasBeenNotified() && !call.is_cancelled()) {
          std::this_thread::yield();
        }
        return std::optional<absl::Status>();
      });
    }
    held_ = std::async(std::launch::async, [this] {
      return Generate(
          WithId("one"),
          [](grpc::ClientContext& context) { context.AddMetadata("x-tenant-id", "a"); },
          [this](int responses) {
            if (responses == 2) begun_.Notify();
          });
    });
    begun_.WaitForNotification();
  }
  v1::GenerateRequest WithId(const std::string& id) {
    v1::GenerateRequest request = long_;
    request.set_request_id(id);
    return request;
  }

  const v1::GenerateRequest long_ = LongRequest("ids");
  absl::Notification begun_;
  std::future<Answer> held_;
};

TEST_F(GatewayIdsTest, ASecondCallOfALiveIdIsRefusedWhateverWorkerIsFree) {
  StartHeld();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Generate(WithId("one")).status.code(), absl::StatusCode::kAlreadyExists);
  }
  const auto by_metadata = [](grpc::ClientContext& context) {
    context.AddMetadata("x-request-id", "one");
  };
  EXPECT_EQ(Generate(long_, by_metadata).status.code(), absl::StatusCode::kAlreadyExists);
  // The field wins.
  ExpectUndisturbed(Generate(WithId("two"), by_metadata), long_);
  ExpectUndisturbed(Generate(long_), long_);
  EXPECT_EQ(NumCalls(), 3);
  release_.Notify();
  ExpectUndisturbed(held_.get(), long_);
  ExpectUndisturbed(Generate(WithId("one")), long_);
}

TEST_F(GatewayIdsTest, TenantsHaveIdsOfTheirOwn) {
  GatewayConfig config;
  config.auth.trust_tenant_header = true;
  StartHeld(std::move(config));
  const auto call = [&](const std::string& tenant) {
    v1::GenerateRequest request = WithId("one");
    // A continuation is not held.
    if (tenant != "a") request.mutable_continuation();
    return Generate(
        request, [&](grpc::ClientContext& context) { context.AddMetadata("x-tenant-id", tenant); });
  };
  EXPECT_EQ(call("a").status.code(), absl::StatusCode::kAlreadyExists);
  ExpectUndisturbed(call("b"), long_);
  release_.Notify();
  ExpectUndisturbed(held_.get(), long_);
}

TEST_F(GatewayIdsTest, AContinuationReplacesTheLiveCallWhereverThatRuns) {
  StartHeld();
  v1::GenerateRequest request = WithId("one");
  request.mutable_continuation();
  ExpectUndisturbed(Generate(request), long_);
  const Answer replaced = held_.get();
  EXPECT_EQ(replaced.status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(protocol::ReasonOf(replaced.status), protocol::kReasonAborted);
  int num_cancelled = 0;
  for (const auto& worker : workers_) {
    for (const FakeWorker::Call& call : worker->calls()) {
      if (call.request.has_continuation()) continue;
      EXPECT_TRUE(worker->WaitForCalls([](const auto& calls) { return calls[0].cancelled; }));
      ++num_cancelled;
    }
  }
  EXPECT_EQ(num_cancelled, 1);
}

TEST_F(GatewayIdsTest, AContinuationGoesBackToItsWorker) {
  StartHeld();
  release_.Notify();
  const Answer whole = held_.get();
  for (size_t had = 1; had < whole.responses.size(); ++had) {
    v1::GenerateRequest request = WithId("");
    for (size_t i = 0; i < had; ++i) {
      request.mutable_continuation()->mutable_received()->MergeFrom(whole.responses[i]);
    }
    const Answer rest = Generate(request);
    ASSERT_EQ(rest.status, absl::OkStatus());
    Answer all = whole;
    all.responses.resize(had);
    all.responses.insert(all.responses.end(), rest.responses.begin(), rest.responses.end());
    ExpectUndisturbed(all, long_);
    EXPECT_EQ(rest.responses[0].accepted().worker(), whole.responses[0].accepted().worker());
  }
}

}  // namespace
}  // namespace continuo::gateway
