// SPDX-License-Identifier: Apache-2.0
#include "services/common/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "services/common/grpc_server.h"

namespace continuo {
namespace {

using ::testing::HasSubstr;

struct KeyAndCertificate {
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  ~KeyAndCertificate() {
    EVP_PKEY_free(key);
    X509_free(certificate);
  }
};

void AddExtension(X509* certificate, int nid, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A fresh key with a certificate for `name`, signed by `ca` or by itself.
std::unique_ptr<KeyAndCertificate> Make(const char* name, const KeyAndCertificate* ca) {
  auto made = std::make_unique<KeyAndCertificate>();
  made->key = EVP_EC_gen("P-256");
  made->certificate = X509_new();
  X509* c = made->certificate;
  X509_set_version(c, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(c), ca == nullptr ? 1 : 2);
  X509_gmtime_adj(X509_getm_notBefore(c), -3600);
  X509_gmtime_adj(X509_getm_notAfter(c), 3600);
  X509_set_pubkey(c, made->key);
  X509_NAME* subject = X509_get_subject_name(c);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(c, X509_get_subject_name(ca == nullptr ? c : ca->certificate));
  if (ca == nullptr) {
    AddExtension(c, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    AddExtension(c, NID_subject_alt_name, "DNS:worker.test");
  }
  X509_sign(c, ca == nullptr ? made->key : ca->key, EVP_sha256());
  return made;
}

class TlsTest : public ::testing::Test {
 protected:
  TlsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tls_test.XXXXXX").string();
    folder_ = mkdtemp(name.data());
    const auto ca = Make("ca", nullptr);
    Write("ca", *ca);
    Write("server", *Make("server", ca.get()));
    Write("client", *Make("client", ca.get()));
    Write("stranger", *Make("stranger", nullptr));
  }
  ~TlsTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const KeyAndCertificate& pair) {
    FILE* file = std::fopen(Path(name + ".crt").c_str(), "w");
    PEM_write_X509(file, pair.certificate);
    std::fclose(file);
    file = std::fopen(Path(name + ".key").c_str(), "w");
    PEM_write_PrivateKey(file, pair.key, nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
  std::unique_ptr<GrpcServer> Start(const TlsFiles& tls) {
    auto server = GrpcServer::Start({.listen = "127.0.0.1:0", .tls = tls}, {});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // A connection comes to be. With TLS 1.3 a server refuses a client's certificate after the
  // client is done, so the connection has to hold for an answer too: any status but UNAVAILABLE.
  bool Connects(const GrpcServer& server, const TlsFiles& tls) {
    auto credentials = MakeChannelCredentials(tls);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("worker.test");
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel(server.address(), *credentials, arguments);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    v1::GetModelResponse response;
    const grpc::Status status = v1::InferenceService::NewStub(channel)->GetModel(
        &context, v1::GetModelRequest(), &response);
    return status.error_code() != grpc::StatusCode::UNAVAILABLE &&
           status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
  }

  std::string folder_;
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
  EXPECT_THAT(message({"", "", Path("none")}), HasSubstr("--tls_ca_file: cannot read"));
  std::ofstream(Path("text")) << "hello";
  EXPECT_THAT(message({"", "", Path("text")}), HasSubstr("is not PEM"));
  EXPECT_FALSE(MakeServerCredentials({"", "", Path("ca.crt")}).ok());
}

TEST_F(TlsTest, WithoutFilesThereIsNoTls) {
  const auto server = Start({});
  EXPECT_TRUE(Connects(*server, {}));
}

}  // namespace
}  // namespace continuo
