// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_verifier.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/tls.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/test_certificate.h"

namespace continuo::common {
namespace {

class PeerVerifierTest : public ::testing::Test {
 protected:
  PeerVerifierTest() {
    ca_ = testing::MakeTestCertificate("ca", nullptr);
    ca_->Write(Path("ca"));
  }
  std::string Path(const std::string& name) const {
    return absl::StrCat(temp_.path().string(), "/", name);
  }

  // Returns whether a client that expects these names takes a server with this certificate, at an
  // address that is none of its names.
  bool Connects(const std::vector<std::string>& names, testing::TestCertificateOptions certificate,
                const testing::TestCertificate* signer = nullptr) {
    testing::MakeTestCertificate("server", signer == nullptr ? ca_.get() : signer,
                                 std::move(certificate))
        ->Write(Path("server"));
    auto server = GrpcServer::Start(
        {.listen = "127.0.0.1:0", .tls = {Path("server.crt"), Path("server.key"), ""}}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    const auto tls = ReloadedTls::Open({"", "", Path("ca.crt")});
    EXPECT_TRUE(tls.ok()) << tls.status();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(
        (*server)->address(), (*tls)->ForChannel(MakePeerVerifier(*PeerNames::Parse("n", names))),
        arguments);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::GetModelResponse response;
    // A server without the service answers that, if anything is heard of it.
    const grpc::StatusCode code = v1::InferenceService::NewStub(channel)
                                      ->GetModel(&context, v1::GetModelRequest(), &response)
                                      .error_code();
    EXPECT_TRUE(code == grpc::StatusCode::UNIMPLEMENTED || code == grpc::StatusCode::UNAVAILABLE)
        << code;
    return code == grpc::StatusCode::UNIMPLEMENTED;
  }

  const testing::TempFolder temp_;
  std::unique_ptr<testing::TestCertificate> ca_;
};

TEST_F(PeerVerifierTest, AServerNeedsOneOfTheNames) {
  EXPECT_TRUE(Connects({"worker.test"}, {.dns = {"worker.test"}}));
  EXPECT_TRUE(Connects({"a.test", "spiffe://fleet/sa/*"},
                       {.dns = {"127.0.0.1"}, .uris = {"spiffe://fleet/sa/worker"}}));
  EXPECT_FALSE(Connects({"worker.test"}, {.dns = {"gateway.test"}}));
  EXPECT_FALSE(Connects({"worker.test"}, {.dns = {}}));
  EXPECT_FALSE(Connects({"worker.test"}, {.dns = {std::string("worker.test\0.evil", 17)}}));
  EXPECT_FALSE(Connects({"spiffe://fleet/sa/worker"}, {.dns = {"spiffe://fleet/sa/worker"}}));
}

TEST_F(PeerVerifierTest, ANameOfAnotherCaIsNone) {
  const auto stranger = testing::MakeTestCertificate("ca", nullptr);
  EXPECT_FALSE(Connects({"worker.test"}, {.dns = {"worker.test"}}, stranger.get()));
}

}  // namespace
}  // namespace continuo::common
