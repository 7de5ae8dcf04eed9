// SPDX-License-Identifier: Apache-2.0
#include "services/common/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/test_certificate.h"

namespace continuo::common {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<testing::TestCertificate> Make(const char* name, const testing::TestCertificate* ca,
                                               testing::TestCertificateOptions options = {}) {
  return testing::MakeTestCertificate(name, ca, std::move(options));
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    ca_ = Make("ca", nullptr);
    Write("ca", *ca_);
    Write("server", *Make("server", ca_.get()));
    Write("client", *Make("client", ca_.get()));
    Write("stranger", *Make("stranger", nullptr));
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const testing::TestCertificate& pair) {
    pair.Write(Path(name));
  }
  std::unique_ptr<GrpcServer> Start(const TlsFiles& tls) {
    auto server = GrpcServer::Start({.listen = "127.0.0.1:0", .tls = tls}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // Returns whether a connection is made. With TLS 1.3 a server rejects a client's certificate
  // after the client's handshake, so the connection has to carry an answer, too: any status but
  // UNAVAILABLE.
  bool Connects(const GrpcServer& server, const TlsFiles& tls) {
    return Serial(server.address(), tls) != 0;
  }
  // Returns the serial number of the certificate on a new connection; 0 where none is made.
  long Serial(const std::string& address, const TlsFiles& tls) {
    auto credentials = MakeChannelCredentials(tls);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return Serial(address, *credentials);
  }
  long Serial(const std::string& address,
              const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("worker.test");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(address, credentials, arguments);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::GetModelResponse response;
    const grpc::Status status = v1::InferenceService::NewStub(channel)->GetModel(
        &context, v1::GetModelRequest(), &response);
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return 0;
    }
    const auto pem = context.auth_context()->FindPropertyValues("x509_pem_cert");
    if (pem.empty()) return -1;  // The connection has no TLS.
    BIO* bytes = BIO_new_mem_buf(pem[0].data(), static_cast<int>(pem[0].size()));
    X509* certificate = PEM_read_bio_X509(bytes, nullptr, nullptr, nullptr);
    const long serial = ASN1_INTEGER_get(X509_get_serialNumber(certificate));
    X509_free(certificate);
    BIO_free(bytes);
    return serial;
  }
  // Connects until the server shows this certificate.
  void WaitForSerial(const std::string& address, const TlsFiles& tls, long serial) {
    const absl::Time end = absl::Now() + absl::Minutes(1);
    while (Serial(address, tls) != serial) ASSERT_LT(absl::Now(), end) << serial;
  }

  const testing::TempFolder temp_;
  const std::string folder_ = temp_.path();
  std::unique_ptr<testing::TestCertificate> ca_;
};

TEST_F(TlsTest, ClientsThatTrustTheCaConnect) {
  const auto server = Start({Path("server.crt"), Path("server.key"), ""});
  EXPECT_TRUE(Connects(*server, {"", "", Path("ca.crt")}));
  EXPECT_FALSE(Connects(*server, {"", "", Path("stranger.crt")}));
  EXPECT_FALSE(Connects(*server, {}));
}

TEST_F(TlsTest, WithACaClientsNeedACertificateOfIt) {
  const auto server = Start({Path("server.crt"), Path("server.key"), Path("ca.crt")});
  EXPECT_TRUE(Connects(*server, {Path("client.crt"), Path("client.key"), Path("ca.crt")}));
  EXPECT_FALSE(Connects(*server, {"", "", Path("ca.crt")}));
  EXPECT_FALSE(Connects(*server, {Path("stranger.crt"), Path("stranger.key"), Path("ca.crt")}));
}

TEST_F(TlsTest, WhatIsMissingIsNamed) {
  const auto message = [](const TlsFiles& files) {
    return std::string(MakeChannelCredentials(files).status().message());
  };
  EXPECT_THAT(message({Path("client.crt"), "", ""}), HasSubstr("--tls_key_file is needed"));
  EXPECT_THAT(message({"", Path("client.key"), ""}), HasSubstr("--tls_cert_file is needed"));
  EXPECT_THAT(message({"", "", Path("none")}),
              AllOf(HasSubstr("--tls_ca_file"), HasSubstr("cannot be read")));
  EXPECT_THAT(message({"", "", folder_}), HasSubstr("cannot be read"));
  EXPECT_THAT(message({"", "", Path("none"), "worker_tls"}), HasSubstr("--worker_tls_ca_file"));
  std::ofstream(Path("text")) << "hello";
  EXPECT_THAT(message({"", "", Path("text")}), HasSubstr("has no certificate"));
  EXPECT_THAT(message({Path("client.crt"), Path("text"), ""}), HasSubstr("no private key"));
  EXPECT_THAT(message({Path("client.crt"), Path("server.key"), ""}),
              HasSubstr("the key is not that of the certificate"));
  Write("old", *Make("old", ca_.get(), {.to = -60}));
  EXPECT_THAT(message({Path("old.crt"), Path("old.key"), ""}), HasSubstr("has expired"));
  const auto server =
      GrpcServer::Start({.listen = "127.0.0.1:0", .tls = {"", "", Path("ca.crt")}}, {});
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("--tls_cert_file and --tls_key_file are needed where --tls_ca_file is"));
}

TEST_F(TlsTest, ARenewedCertificateIsServed) {
  const TlsFiles client = {Path("client.crt"), Path("client.key"), Path("ca.crt")};
  const auto server = Start({Path("server.crt"), Path("server.key"), Path("ca.crt")});
  ASSERT_EQ(Serial(server->address(), client), 2);
  Write("server", *Make("server", ca_.get(), {.serial = 7}));
  WaitForSerial(server->address(), client, 7);
  // Files that are broken meanwhile do not matter.
  std::ofstream(Path("server.crt")) << "hello";
  Write("server", *Make("server", ca_.get(), {.serial = 8}));
  WaitForSerial(server->address(), client, 8);
}

TEST_F(TlsTest, AChannelShowsARenewedCertificate) {
  const auto server = Start({Path("server.crt"), Path("server.key"), Path("ca.crt")});
  auto tls = ReloadedTls::Open({Path("client.crt"), Path("client.key"), Path("ca.crt")});
  ASSERT_TRUE(tls.ok()) << tls.status();
  const auto credentials = (*tls)->ForChannel();
  EXPECT_EQ(Serial(server->address(), credentials), 2);
  // The server changes to certificates of another CA, and the client's have to be of that one, too.
  const auto ca = Make("ca2", nullptr);
  Write("client", *Make("client", ca.get()));
  Write("server", *Make("server", ca.get(), {.serial = 9}));
  Write("ca", *ca);
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (Serial(server->address(), credentials) != 9) ASSERT_LT(absl::Now(), end);
}

TEST_F(TlsTest, ABrokenFileIsNotServed) {
  const TlsFiles client = {Path("client.crt"), Path("client.key"), Path("ca.crt")};
  const auto tls = ReloadedTls::Open({Path("server.crt"), Path("server.key"), Path("ca.crt")});
  ASSERT_TRUE(tls.ok()) << tls.status();
  const auto served = [&] {
    (*tls)->Reload();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", *(*tls)->ForServer(), &port);
    const auto server = builder.BuildAndStart();
    return Serial(absl::StrCat("127.0.0.1:", port), client);
  };
  ASSERT_EQ(served(), 2);
  std::ofstream(Path("server.crt")) << "hello";
  EXPECT_EQ(served(), 2);
  Write("server", *Make("server", ca_.get(), {.serial = 3, .to = -60}));  // It has expired.
  EXPECT_EQ(served(), 2);
  Write("server", *Make("server", ca_.get(), {.serial = 4}));
  std::filesystem::copy_file(Path("client.key"), Path("server.key"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(served(), 2);
  std::filesystem::remove(Path("server.key"));
  EXPECT_EQ(served(), 2);
  Write("server", *Make("server", ca_.get(), {.serial = 5}));
  EXPECT_EQ(served(), 5);
}

TEST_F(TlsTest, AnExpiredCertificateIsRefusedByBothSides) {
  const auto server = Start({Path("server.crt"), Path("server.key"), Path("ca.crt")});
  const auto old = Make("old", ca_.get(), {.to = -60});
  Write("old", *old);
  const auto read = [this](const std::string& name) {
    std::ifstream file(Path(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  grpc::SslCredentialsOptions client;
  client.pem_root_certs = read("ca.crt");
  client.pem_cert_chain = read("old.crt");
  client.pem_private_key = read("old.key");
  EXPECT_EQ(Serial(server->address(), grpc::SslCredentials(client)), 0);

  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({read("old.key"), read("old.crt")});
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  const auto expired = builder.BuildAndStart();
  EXPECT_EQ(Serial(absl::StrCat("127.0.0.1:", port), {"", "", Path("ca.crt")}), 0);
}

TEST_F(TlsTest, WithoutFilesThereIsNoTls) {
  const auto server = Start({});
  EXPECT_TRUE(Connects(*server, {}));
}

}  // namespace
}  // namespace continuo::common
