// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
namespace http = boost::beast::http;
using ::testing::HasSubstr;
using ::testing::Not;

// Makes a key and a self-signed certificate for `name`.
TlsPem MakePem(const char* name) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(certificate, subject);
  X509_sign(certificate, key, EVP_sha256());
  const auto text = [](auto write) {
    BIO* const bio = BIO_new(BIO_s_mem());
    write(bio);
    char* data;
    const auto size = static_cast<size_t>(BIO_get_mem_data(bio, &data));
    std::string pem(data, size);
    BIO_free(bio);
    return pem;
  };
  TlsPem pem;
  pem.certificates = text([&](BIO* bio) { PEM_write_bio_X509(bio, certificate); });
  pem.key = text(
      [&](BIO* bio) { PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pem;
}

class TlsTest : public ServerTest {
 protected:
  void StartTls(const TlsPem& pem) {
    StartServer();
    server_.reset();
    {
      absl::MutexLock lock(&mutex_);
      pem_ = pem;
    }
    HttpServerOptions options = {.listen = "127.0.0.1:0"};
    options.tls_poll_interval = absl::Milliseconds(1);
    options.read_tls = [this]() -> absl::StatusOr<TlsPem> {
      absl::MutexLock lock(&mutex_);
      ++num_reads_;
      return pem_;
    };
    auto server = HttpServer::Start(options, api_.get());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // Returns when the server has read the files.
  void Replace(const TlsPem& pem) {
    absl::MutexLock lock(&mutex_);
    pem_ = pem;
    const int enough = num_reads_ + 2;
    const auto read = [&] { return num_reads_ >= enough; };
    mutex_.Await(absl::Condition(&read));
  }
  // The body of a stream, requested by a client that trusts `roots` and presents `own`; without a
  // body the error.
  std::string Ask(const TlsPem& roots, const TlsPem* own = nullptr, int version = 0) {
    asio::io_context io;
    ssl::context context(ssl::context::tls_client);
    context.add_certificate_authority(asio::buffer(roots.certificates));
    context.set_verify_mode(ssl::verify_peer);
    if (version != 0) SSL_CTX_set_max_proto_version(context.native_handle(), version);
    if (own != nullptr) {
      context.use_certificate_chain(asio::buffer(own->certificates));
      context.use_private_key(asio::buffer(own->key), ssl::context::pem);
    }
    ssl::stream<asio::ip::tcp::socket> stream(io, context);
    try {
      stream.next_layer().connect(
          {asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(server_->port())});
      stream.handshake(ssl::stream_base::client);
      const std::string body = R"({"prompt":"once","stream":true})";
      asio::write(stream,
                  asio::buffer(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: test\r\n",
                                            "Content-Length: ", body.size(), "\r\n\r\n", body)));
      boost::beast::flat_buffer buffer;
      http::response<http::string_body> response;
      http::read(stream, buffer, response);
      return response.body();
    } catch (const boost::system::system_error& error) {
      return error.what();
    }
  }

  absl::Mutex mutex_;
  TlsPem pem_ ABSL_GUARDED_BY(mutex_);
  int num_reads_ = 0;  // under mutex_
};

TEST_F(TlsTest, AStreamComesOverTls) {
  const TlsPem pem = MakePem("gateway");
  StartTls(pem);
  const std::string text = TextOf(Ask(pem));
  EXPECT_EQ(text, ExpectedText());
  EXPECT_THAT(Ask(MakePem("gateway")), HasSubstr("certificate verify failed"));
  EXPECT_THAT(Ask(pem, nullptr, TLS1_1_VERSION), Not(HasSubstr("DONE")));
  // A client without TLS gets nothing.
  HttpClient plain = Connect();
  plain.Get("/healthz");
  EXPECT_THAT(plain.ReadToEnd(), Not(HasSubstr("ok")));
}

TEST_F(TlsTest, WithRootsClientsNeedACertificate) {
  const TlsPem server = MakePem("gateway"), client = MakePem("client"), other = MakePem("client");
  TlsPem pem = server;
  pem.roots = client.certificates;
  StartTls(pem);
  EXPECT_THAT(Ask(server), Not(HasSubstr("DONE")));
  EXPECT_THAT(Ask(server, &other), Not(HasSubstr("DONE")));
  EXPECT_THAT(Ask(server, &client), HasSubstr("DONE"));
}

TEST_F(TlsTest, ANewCertificateIsServedAndABrokenOneIsNot) {
  const TlsPem first = MakePem("gateway"), second = MakePem("gateway");
  StartTls(first);
  EXPECT_THAT(Ask(first), HasSubstr("DONE"));
  Replace(second);
  EXPECT_THAT(Ask(second), HasSubstr("DONE"));
  EXPECT_THAT(Ask(first), Not(HasSubstr("DONE")));
  Replace({.certificates = "none", .key = second.key});
  EXPECT_THAT(Ask(second), HasSubstr("DONE"));
  Replace({.certificates = first.certificates, .key = second.key});
  EXPECT_THAT(Ask(second), HasSubstr("DONE"));
}

TEST_F(TlsTest, ABrokenCertificateIsRejectedAtTheStart) {
  HttpServerOptions options = {.listen = "127.0.0.1:0"};
  options.read_tls = [] { return TlsPem{.certificates = "x", .key = "y"}; };
  StartServer();
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Start(options, api_.get()).status()));
}

}  // namespace
}  // namespace continuo::gateway::openai
