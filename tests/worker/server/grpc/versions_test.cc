// SPDX-License-Identifier: Apache-2.0
// Tests a worker below gateways of other releases: fields that a later one adds do no harm, and
// fields that an earlier one does not send have sane defaults.
// tests/gateway/gateway_versions_test.cc is the other side.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/worker/server/grpc/worker_server_harness.h"

namespace continuo::testing {
namespace {

constexpr int kNewField = 1000;

void AddNewField(google::protobuf::Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(kNewField, 7);
}

class VersionsTest : public WorkerServerTest {
 protected:
  // The responses before a migration, cut after the first tokens, and the rest of the answer.
  Answer GoOn(v1::GenerateRequest request, const std::map<std::string, std::string>& metadata,
              bool of_a_later_release) {
    Answer joined;
    v1::GenerateResponse& received = *request.mutable_continuation()->mutable_received();
    {
      v1::GenerateRequest whole = request;
      whole.clear_continuation();
      auto call = Start(whole);
      EXPECT_TRUE(call->ReadToTokens());
      for (const auto& response : call->responses) {
        received.MergeFrom(response);
        joined.Add(response);
      }
      call->context.TryCancel();
      call->Finish().IgnoreError();
    }
    if (of_a_later_release) {
      AddNewField(received);
      AddNewField(*received.mutable_accepted());
      AddNewField(*request.mutable_continuation());
    }
    auto call = Start(request, metadata);
    const absl::Status status = call->Finish();
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& response : call->responses) joined.Add(response);
    return joined;
  }
};

TEST_F(VersionsTest, AGatewayThatSendsOnlyWhatItHasToIsServed) {
  Serve();
  // A watch without intervals, and calls without x-continuo-call and x-tenant-id.
  grpc::ClientContext context;
  auto reader = worker_->WatchLoad(&context, {});
  v1::WatchLoadResponse load;
  EXPECT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.state(), v1::WORKER_STATE_SERVING);
  context.TryCancel();
  v1::GenerateRequest request = BaseRequest(200);
  request.set_request_id("id");
  EXPECT_EQ(GoOn(request, {{"x-continuo-move", "1"}, {"x-request-id", "id"}}, false).Comparable(),
            Generate(request).Comparable());
}

TEST_F(VersionsTest, AGatewayOfALaterReleaseIsServed) {
  Serve();
  v1::WatchLoadRequest watch;
  AddNewField(watch);
  grpc::ClientContext context;
  auto reader = worker_->WatchLoad(&context, watch);
  v1::WatchLoadResponse load;
  EXPECT_TRUE(reader->Read(&load));
  context.TryCancel();
  v1::GenerateRequest request = BaseRequest(200);
  request.set_request_id("id");
  EXPECT_EQ(GoOn(request,
                 {{"x-continuo-move", "1"},
                  {"x-continuo-call", "c"},
                  {"x-continuo-body", "b"},
                  {"x-continuo-later", "1"},
                  {"x-request-id", "id"}},
                 true)
                .Comparable(),
            Generate(request).Comparable());
}

}  // namespace
}  // namespace continuo::testing
