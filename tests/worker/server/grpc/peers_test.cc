// SPDX-License-Identifier: Apache-2.0
// Tests who may call which method of a worker.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/protocol/error.h"
#include "tests/testing/temp_folder.h"
#include "tests/worker/server/grpc/worker_server_harness.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace continuo::server {
namespace {

using ::testing::HasSubstr;
using testing::WorkerServerTest;

constexpr char kToken[] = "token-of-the-fleet-1";

// The file exists before the worker is made.
struct WithToken {
  WithToken() { std::ofstream(path) << kToken << "\n"; }
  const testing::TempFolder temp;
  const std::string path = absl::StrCat(temp.path().string(), "/token");
};

class PeersTest : private WithToken, public WorkerServerTest {
 protected:
  explicit PeersTest(bool open_inference = false)
      : WorkerServerTest({.token_file = path, .open_inference = open_inference}) {}

  using Prepare = std::function<void(grpc::ClientContext&)>;
  static void Stranger(grpc::ClientContext&) {}
  static void Peer(grpc::ClientContext& context) {
    context.AddMetadata("x-continuo-token", kToken);
  }

  template <typename Stub, typename Request, typename Response>
  static absl::Status Unary(Stub* stub,
                            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                         Response*),
                            const Prepare& prepare, const Request& request = {}) {
    grpc::ClientContext context;
    prepare(context);
    Response response;
    return common::FromGrpcStatus((stub->*method)(&context, request, &response));
  }
  absl::Status WatchLoad(const Prepare& prepare) {
    grpc::ClientContext context;
    prepare(context);
    auto reader = worker_->WatchLoad(&context, v1::WatchLoadRequest());
    v1::WatchLoadResponse response;
    if (!reader->Read(&response)) return common::FromGrpcStatus(reader->Finish());
    context.TryCancel();
    (void)reader->Finish();
    return absl::OkStatus();
  }
  absl::Status StreamCoreMetrics(const Prepare& prepare) {
    grpc::ClientContext context;
    prepare(context);
    const auto stub = xds::service::orca::v3::OpenRcaService::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    auto reader = stub->StreamCoreMetrics(&context, {});
    xds::data::orca::v3::OrcaLoadReport report;
    if (!reader->Read(&report)) return common::FromGrpcStatus(reader->Finish());
    context.TryCancel();
    (void)reader->Finish();
    return absl::OkStatus();
  }
  absl::Status WatchSteps(const Prepare& prepare) {
    grpc::ClientContext context;
    prepare(context);
    auto reader = worker_->WatchSteps(&context, v1::WatchStepsRequest());
    reader->WaitForInitialMetadata();
    // Somebody's steps, which a stream that is open tells.
    EXPECT_TRUE(Generate(Peer).ok());
    v1::WatchStepsResponse response;
    if (!reader->Read(&response)) return common::FromGrpcStatus(reader->Finish());
    context.TryCancel();
    (void)reader->Finish();
    return absl::OkStatus();
  }
  absl::Status Generate(const Prepare& prepare) {
    grpc::ClientContext context;
    prepare(context);
    auto reader = inference_->Generate(&context, BaseRequest(3));
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
    }
    return common::FromGrpcStatus(reader->Finish());
  }
  // Every method that tells the load or controls the worker, Drain last.
  std::vector<absl::Status> ControlCalls(const Prepare& prepare) {
    return {WatchLoad(prepare), StreamCoreMetrics(prepare), WatchSteps(prepare),
            Unary(worker_.get(), &v1::WorkerService::Stub::Abort, prepare, AbortOf("none")),
            Unary(worker_.get(), &v1::WorkerService::Stub::Drain, prepare)};
  }
  std::vector<absl::Status> InferenceCalls(const Prepare& prepare) {
    using Stub = v1::InferenceService::Stub;
    Stub* const stub = inference_.get();
    v1::TokenizeRequest tokenize;
    tokenize.set_text("hello");
    v1::DetokenizeRequest detokenize;
    detokenize.add_token_ids(65);
    return {Unary(stub, &Stub::Tokenize, prepare, tokenize),
            Unary(stub, &Stub::Detokenize, prepare, detokenize),
            Unary(stub, &Stub::ListModels, prepare, v1::ListModelsRequest()),
            Unary(stub, &Stub::GetModel, prepare, v1::GetModelRequest()), Generate(prepare)};
  }
  static v1::AbortRequest AbortOf(const std::string& id) {
    v1::AbortRequest request;
    request.set_request_id(id);
    return request;
  }
  static void ExpectRefused(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_EQ(protocol::ReasonOf(status), protocol::kReasonPeerToken) << status;
  }
};

TEST_F(PeersTest, WithATokenStrangersAreRefusedWhateverTheyCall) {
  Serve();
  for (const absl::Status& status : ControlCalls(Stranger)) ExpectRefused(status);
  for (const absl::Status& status : InferenceCalls(Stranger)) ExpectRefused(status);
  ExpectRefused(
      Unary(inference_.get(), &v1::InferenceService::Stub::Embed, Stranger, v1::EmbedRequest()));
  ExpectRefused(Unary(inference_.get(), &v1::InferenceService::Stub::GetTokenizer, Stranger,
                      v1::GetTokenizerRequest()));
  const Prepare guesses = [](grpc::ClientContext& context) {
    context.AddMetadata("x-continuo-token", "token-of-the-fleet-2");
  };
  for (const absl::Status& status : ControlCalls(guesses)) ExpectRefused(status);
  EXPECT_FALSE(server_->runtime().lifecycle.drained());
}

TEST_F(PeersTest, WithItPeersMayCallEverything) {
  Serve();
  for (const absl::Status& status : InferenceCalls(Peer)) EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : ControlCalls(Peer)) EXPECT_TRUE(status.ok()) << status;
}

TEST_F(PeersTest, ALongPromptOfAStrangerIsNotParsed) {
  Serve();
  v1::GenerateRequest request = BaseRequest(3);
  request.set_text(std::string(1 << 20, 'a'));
  ExpectRefused(Failure(request));
  ExpectRefused(Failure(request, {{"x-continuo-move", "1"}}));
}

class OpenInferenceTest : public PeersTest {
 protected:
  OpenInferenceTest() : PeersTest(/*open_inference=*/true) {}
};

TEST_F(OpenInferenceTest, StrangersMayAskTheModelAsOneTenantAndNothingElse) {
  Serve();
  for (const absl::Status& status : InferenceCalls(Stranger)) EXPECT_TRUE(status.ok()) << status;
  // A stranger's request is not found under the tenant that it claims.
  executor_.SetOpen(false);
  v1::GenerateRequest request = BaseRequest(100);
  request.set_request_id("one");
  auto call = Start(request, {{"x-tenant-id", "alice"}});
  const auto abort_of = [&](const char* tenant) {
    grpc::ClientContext context;
    Peer(context);
    context.AddMetadata("x-tenant-id", tenant);
    v1::AbortResponse response;
    const grpc::Status status = worker_->Abort(&context, AbortOf("one"), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.aborted();
  };
  WaitUntil([&] { return abort_of("default"); });
  executor_.SetOpen(true);
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kAborted);
  for (const absl::Status& status : ControlCalls(Stranger)) ExpectRefused(status);
}

TEST(WorkerServerPeersTest, OpenInferenceAloneIsRefused) {
  const SystemClock clock;
  const auto server =
      WorkerServer::Start({.listen = "127.0.0.1:0", .open_inference = true}, &clock);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--open_inference is of no use"));
}

}  // namespace
}  // namespace continuo::server
