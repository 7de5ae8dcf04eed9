// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/grpc_server.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>

#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "tests/common/grpc/endless_generate.h"

namespace continuo::common {
namespace {

using ::testing::HasSubstr;

// Answers GetModel as the name of the model says; Generate goes on until it is cancelled.
class FakeService : public v1::InferenceService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelResponse* response) override {
    response->mutable_model()->set_name(request->name());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(request->name() != "bad"
                        ? grpc::Status::OK
                        : ToGrpcStatus(protocol::WithRetryInfo(
                              protocol::FieldError("name", "is bad"), absl::Seconds(3))));
    return reactor;
  }
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest*) override {
    return new EndlessGenerate;
  }
};

// Makes a unary call by name, with messages as bytes, and returns its answer.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* response) {
  grpc::ClientContext context;
  grpc::GenericStub stub(channel);
  const grpc::Slice slice(request);
  const grpc::ByteBuffer in(&slice, 1);
  grpc::ByteBuffer out;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &in, &out,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  const grpc::Status status = done.get_future().get();
  std::vector<grpc::Slice> slices;
  response->clear();
  if (status.ok() && out.Dump(&slices).ok()) {
    for (const grpc::Slice& part : slices) {
      response->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
  }
  return status;
}

class GrpcServerTest : public ::testing::Test {
 protected:
  void Start(GrpcServerOptions options) {
    if (options.listen.empty()) options.listen = "127.0.0.1:0";
    auto server = GrpcServer::Start(options, {&service_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }
  grpc::Status GetModel(const std::string& name, v1::GetModelResponse* response) {
    grpc::ClientContext context;
    v1::GetModelRequest request;
    request.set_name(name);
    return v1::InferenceService::NewStub(channel_)->GetModel(&context, request, response);
  }
  // Returns "SERVING", "NOT_SERVING" or the number of the code. HealthCheckRequest has a string 1,
  // HealthCheckResponse an enum 1 with 1 for SERVING and 2 for NOT_SERVING.
  std::string Health(const std::string& name) {
    std::string request;
    if (!name.empty()) request = "\x0a" + std::string(1, static_cast<char>(name.size())) + name;
    std::string response;
    const grpc::Status status =
        CallRaw(channel_, "/grpc.health.v1.Health/Check", request, &response);
    if (!status.ok()) return std::to_string(status.error_code());
    return response == "\x08\x01" ? "SERVING" : response == "\x08\x02" ? "NOT_SERVING" : "?";
  }

  FakeService service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcServerTest, PortZeroIsAFreePortAndCallsArrive) {
  Start({});
  EXPECT_GT(server_->port(), 0);
  v1::GetModelResponse response;
  EXPECT_TRUE(GetModel("m", &response).ok());
  EXPECT_EQ(response.model().name(), "m");
}

TEST_F(GrpcServerTest, UnixSocketsWork) {
  const std::string path = ::testing::TempDir() + "grpc_server_test.sock";
  Start({.listen = "unix:" + path});
  EXPECT_EQ(server_->port(), 0);
  v1::GetModelResponse response;
  EXPECT_TRUE(GetModel("m", &response).ok());
}

TEST_F(GrpcServerTest, ErrorDetailsReachTheClient) {
  Start({});
  v1::GetModelResponse response;
  const absl::Status status = FromGrpcStatus(GetModel("bad", &response));
  EXPECT_EQ(status,
            protocol::WithRetryInfo(protocol::FieldError("name", "is bad"), absl::Seconds(3)));
}

TEST_F(GrpcServerTest, HealthKnowsItsNames) {
  Start({.health_names = {"continuo.v1.InferenceService"}});
  EXPECT_EQ(Health(""), "SERVING");
  EXPECT_EQ(Health("continuo.v1.InferenceService"), "SERVING");
  EXPECT_EQ(Health("model"), std::to_string(grpc::StatusCode::NOT_FOUND));
  server_->SetServing("model", false);
  EXPECT_EQ(Health("model"), "NOT_SERVING");
  server_->SetAllServing(false);
  EXPECT_EQ(Health(""), "NOT_SERVING");
  EXPECT_EQ(Health("continuo.v1.InferenceService"), "NOT_SERVING");
  server_->SetServing("", true);
  EXPECT_EQ(Health(""), "SERVING");
}

TEST_F(GrpcServerTest, SomeNamesOfHealthComeAndGo) {
  Start({.health_names = {"stays"}, .serving = false});
  server_->SetPassingNames({"a", "stays"});
  EXPECT_EQ(Health("a"), "NOT_SERVING");
  server_->SetAllServing(true);
  EXPECT_EQ(Health("a"), "SERVING");
  server_->SetPassingNames({"b"});
  EXPECT_EQ(Health("a"), "NOT_SERVING");
  EXPECT_EQ(Health("b"), "SERVING");
  EXPECT_EQ(Health("stays"), "SERVING") << "it is none of those that go";
  server_->SetAllServing(false);
  EXPECT_EQ(Health("b"), "NOT_SERVING");
  server_->SetAllServing(true);
  EXPECT_EQ(Health("a"), "NOT_SERVING") << "it is gone";
  EXPECT_EQ(Health("b"), "SERVING");
}

TEST_F(GrpcServerTest, HealthCanBeginAsNotServing) {
  Start({.serving = false});
  EXPECT_EQ(Health(""), "NOT_SERVING");
}

TEST_F(GrpcServerTest, ReflectionListsTheService) {
  Start({});
  grpc::ClientContext context;
  grpc::GenericStub stub(channel_);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  const grpc::Slice list_services("\x3a\x01*");  // The message has string list_services = 7.
  call->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  grpc::Slice slice;
  ASSERT_TRUE(answer.DumpToSingleSlice(&slice).ok());
  EXPECT_THAT(std::string(reinterpret_cast<const char*>(slice.begin()), slice.size()),
              HasSubstr("continuo.v1.InferenceService"));
  context.TryCancel();
  queue.Shutdown();
}

TEST_F(GrpcServerTest, MessagesOverTheLimitAreRefused) {
  Start({.max_receive_bytes = 1000});
  v1::GetModelResponse response;
  EXPECT_TRUE(GetModel(std::string(900, 'x'), &response).ok());
  EXPECT_EQ(GetModel(std::string(1100, 'x'), &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(GrpcServerTest, ATakenPortIsAnErrorThatNamesIt) {
  Start({});
  const auto second = GrpcServer::Start({.listen = server_->address()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(server_->address()));
}

TEST_F(GrpcServerTest, TheAddressTellsTheHostThatWasGiven) {
  const std::vector<std::pair<std::string, std::string>> hosts = {
      {"127.0.0.1", "127.0.0.1"}, {"127.0.0.2", "127.0.0.2"}, {"localhost", "localhost"},
      {"0.0.0.0", "127.0.0.1"},   {"[::1]", "[::1]"},         {"[::]", "[::1]"}};
  for (const auto& [listen, told] : hosts) {
    const auto server = GrpcServer::Start({.listen = listen + ":0"}, {});
    // A machine may be without IPv6.
    if (!server.ok() && listen.starts_with("[")) continue;
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ((*server)->address(), absl::StrCat(told, ":", (*server)->port()));
  }
}

TEST_F(GrpcServerTest, ShutdownCancelsWhatIsOpenAtTheDeadline) {
  Start({});
  grpc::ClientContext context;
  auto stub = v1::InferenceService::NewStub(channel_);
  auto reader = stub->Generate(&context, v1::GenerateRequest());
  reader->WaitForInitialMetadata();
  server_->Shutdown(absl::InfinitePast());
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
  server_->Shutdown(absl::InfiniteFuture());  // A second call has no effect.
}

TEST_F(GrpcServerTest, ShutdownWaitsForOpenCalls) {
  Start({});
  grpc::ClientContext context;
  auto stub = v1::InferenceService::NewStub(channel_);
  auto reader = stub->Generate(&context, v1::GenerateRequest());
  reader->WaitForInitialMetadata();
  auto shutdown =
      std::async(std::launch::async, [this] { server_->Shutdown(absl::InfiniteFuture()); });
  EXPECT_EQ(shutdown.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  context.TryCancel();
  shutdown.get();
}

TEST_F(GrpcServerTest, AMissingCertificateIsAnErrorThatNamesTheFlag) {
  const auto no_key = GrpcServer::Start({.listen = "127.0.0.1:0", .tls = {.cert_file = "x"}}, {});
  EXPECT_THAT(std::string(no_key.status().message()), HasSubstr("--tls_key_file"));
  const auto no_file = GrpcServer::Start(
      {.listen = "127.0.0.1:0", .tls = {.cert_file = "/no/such", .key_file = "/no/such"}}, {});
  EXPECT_THAT(std::string(no_file.status().message()), HasSubstr("--tls_cert_file"));
  const auto only_ca =
      GrpcServer::Start({.listen = "127.0.0.1:0", .tls = {.ca_file = "/dev/null"}}, {});
  EXPECT_EQ(only_ca.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace continuo::common
