// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_check.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/test_certificate.h"

namespace continuo::common {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Metadata = std::vector<std::pair<std::string, std::string>>;

constexpr char kToken[] = "token-of-the-fleet-1";

// Answers Drain with what the check says of the caller.
class CheckedService : public v1::WorkerService::CallbackService {
 public:
  explicit CheckedService(PeerCheck* check) : check_(check) {}
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    auto* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(check_->Require(*context)));
    return reactor;
  }

 private:
  PeerCheck* const check_;
};

class PeerCheckTest : public ::testing::Test {
 protected:
  PeerCheckTest() {
    ca_ = testing::MakeTestCertificate("ca", nullptr);
    ca_->Write(Path("ca"));
    testing::MakeTestCertificate("server", ca_.get())->Write(Path("server"));
    std::ofstream(Path("token")) << kToken;
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(temp_.path().string(), "/", name);
  }

  void Serve(PeerOptions options) {
    auto check = PeerCheck::Open(options);
    ASSERT_TRUE(check.ok()) << check.status();
    check_ = *std::move(check);
    service_ = std::make_unique<CheckedService>(check_.get());
    auto server =
        GrpcServer::Start({.listen = "127.0.0.1:0", .tls = options.tls}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  TlsFiles MutualTls() const { return {Path("server.crt"), Path("server.key"), Path("ca.crt")}; }
  // Returns what a caller with this certificate is told.
  absl::Status CallWith(testing::TestCertificateOptions certificate,
                        const Metadata& metadata = {}) {
    testing::MakeTestCertificate("client", ca_.get(), std::move(certificate))
        ->Write(Path("client"));
    return Call({Path("client.crt"), Path("client.key"), Path("ca.crt")}, metadata);
  }
  absl::Status Call(const TlsFiles& tls, const Metadata& metadata = {}) {
    auto credentials = MakeChannelCredentials(tls);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("worker.test");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(server_->address(), *credentials, arguments);
    grpc::ClientContext context;
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    v1::DrainResponse response;
    return FromGrpcStatus(
        v1::WorkerService::NewStub(channel)->Drain(&context, v1::DrainRequest(), &response));
  }
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                            std::string_view reason) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(protocol::ReasonOf(status), reason) << status;
  }

  const testing::TempFolder temp_;
  std::unique_ptr<testing::TestCertificate> ca_;
  std::unique_ptr<PeerCheck> check_;
  std::unique_ptr<CheckedService> service_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(PeerCheckTest, WithoutTlsAndTokenEverybodyIsAPeer) {
  Serve({});
  EXPECT_FALSE(check_->is_strict());
  EXPECT_TRUE(Call({}).ok());
  EXPECT_EQ(check_->num_refused(), 0);
}

TEST_F(PeerCheckTest, WithATokenThatIsNeeded) {
  Serve({.token_file = Path("token")});
  EXPECT_TRUE(check_->is_strict());
  EXPECT_TRUE(Call({}, {{kTokenMetadata, kToken}}).ok());
  for (const Metadata& wrong : {Metadata{},
                                {{kTokenMetadata, ""}},
                                {{kTokenMetadata, "token-of-the-fleet-2"}},
                                {{kTokenMetadata, std::string(4000, 't')}},
                                {{kTokenMetadata, kToken}, {kTokenMetadata, kToken}},
                                {{"authorization", absl::StrCat("Bearer ", kToken)}}}) {
    ExpectRefused(Call({}, wrong), absl::StatusCode::kUnauthenticated, protocol::kReasonPeerToken);
  }
  EXPECT_EQ(check_->num_refused(), 6);
}

TEST_F(PeerCheckTest, ATlsServerThatAsksForNothingKnowsNoPeers) {
  Serve({.tls = {Path("server.crt"), Path("server.key"), ""}});
  EXPECT_FALSE(check_->is_strict());
  ExpectRefused(Call({"", "", Path("ca.crt")}), absl::StatusCode::kPermissionDenied,
                protocol::kReasonPeerName);
  // A certificate that nobody has checked makes no peer.
  ExpectRefused(CallWith({}), absl::StatusCode::kPermissionDenied, protocol::kReasonPeerName);
}

TEST_F(PeerCheckTest, ATlsServerMayKnowPeersByTheirToken) {
  Serve({.tls = {Path("server.crt"), Path("server.key"), ""}, .token_file = Path("token")});
  EXPECT_TRUE(Call({"", "", Path("ca.crt")}, {{kTokenMetadata, kToken}}).ok());
  ExpectRefused(Call({"", "", Path("ca.crt")}), absl::StatusCode::kUnauthenticated,
                protocol::kReasonPeerToken);
}

TEST_F(PeerCheckTest, WithoutNamesEveryCertificateOfTheCaIsAPeers) {
  Serve({.tls = MutualTls()});
  EXPECT_FALSE(check_->is_strict());
  EXPECT_TRUE(CallWith({.dns = {"whoever.test"}}).ok());
}

TEST_F(PeerCheckTest, WithNamesACertificateNeedsOneOfThem) {
  Serve({.tls = MutualTls(),
         .client_names = {"gateway.test", "*.ops.test", "spiffe://fleet/sa/gateway"}});
  EXPECT_TRUE(check_->is_strict());
  EXPECT_TRUE(CallWith({.dns = {"gateway.test"}}).ok());
  EXPECT_TRUE(CallWith({.dns = {"other.test", "a.ops.test"}}).ok());
  EXPECT_TRUE(CallWith({.dns = {}, .uris = {"spiffe://fleet/sa/gateway"}}).ok());
  const std::string nul(1, '\0');
  for (testing::TestCertificateOptions other : std::vector<testing::TestCertificateOptions>{
           {.dns = {"client.test"}},
           {.dns = {}},
           {.dns = {"gateway.test" + nul + ".evil.test"}},
           {.dns = {"gateway.test" + nul}},
           {.dns = {"*.test"}},
           {.dns = {"*.ops.test"}},
           {.dns = {"spiffe://fleet/sa/gateway"}},
           {.dns = {}, .uris = {"gateway.test", "spiffe://fleet/sa/gateway/x"}}}) {
    ExpectRefused(CallWith(std::move(other)), absl::StatusCode::kPermissionDenied,
                  protocol::kReasonPeerName);
  }
  EXPECT_EQ(check_->num_refused(), 8);
  EXPECT_THAT(std::string(CallWith({.dns = {"client.test"}}).message()),
              AllOf(HasSubstr("is of client.test"), HasSubstr("--tls_client_names")));
  EXPECT_THAT(std::string(CallWith({.dns = {}}).message()), HasSubstr("has no DNS name"));
}

TEST_F(PeerCheckTest, EveryCheckThatIsConfiguredHasToPass) {
  Serve({.tls = MutualTls(), .client_names = {"gateway.test"}, .token_file = Path("token")});
  const Metadata token = {{kTokenMetadata, kToken}};
  EXPECT_TRUE(CallWith({.dns = {"gateway.test"}}, token).ok());
  ExpectRefused(CallWith({.dns = {"gateway.test"}}), absl::StatusCode::kUnauthenticated,
                protocol::kReasonPeerToken);
  ExpectRefused(CallWith({.dns = {"client.test"}}, token), absl::StatusCode::kPermissionDenied,
                protocol::kReasonPeerName);
}

TEST_F(PeerCheckTest, WhatCannotWorkIsRefusedAtStart) {
  const auto message = [](const PeerOptions& options) {
    return std::string(PeerCheck::Open(options).status().message());
  };
  EXPECT_THAT(message({.client_names = {"a.test"}}),
              HasSubstr("--tls_client_names is of no use without --tls_ca_file"));
  EXPECT_THAT(message({.tls = MutualTls(), .client_names = {"*"}}),
              HasSubstr("--tls_client_names"));
  EXPECT_THAT(message({.token_file = Path("none")}), HasSubstr("--token_file"));
}

}  // namespace
}  // namespace continuo::common
