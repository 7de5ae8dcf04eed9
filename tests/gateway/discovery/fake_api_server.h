// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/test_certificate.h"

namespace continuo::gateway {

// An API server of Kubernetes that does what the test says, one connection after the other, and the
// folder that a pod would have. Calls wait for the other side.
class FakeApiServer {
 public:
  explicit FakeApiServer(const char* address = "127.0.0.1")
      : ca_(testing::MakeTestCertificate("ca", nullptr)),
        own_(testing::MakeTestCertificate(
            "api", ca_.get(),
            {.dns = {"localhost"}, .addresses = {std::string(15, '\0') + '\1'}})),  // ::1
        acceptor_(context_, {boost::asio::ip::make_address(address), 0}) {
    SSL_CTX_use_certificate(tls_.native_handle(), own_->certificate);
    SSL_CTX_use_PrivateKey(tls_.native_handle(), own_->key);
    WriteAuthority(*ca_);
    WriteFile("token", "first\n");
    WriteFile("namespace", "llm");
  }

  std::string account() const { return folder_.path().string(); }
  void WriteFile(const char* name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
  }
  // A target of --workers.
  std::string Target(const std::string& service) const {
    return absl::StrCat("kubernetes://localhost:", port(), "/", service);
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  void WriteAuthority(const testing::TestCertificate& ca) const { WriteFile("ca.crt", ca.Pem()); }
  const testing::TestCertificate& authority() const { return *ca_; }

  struct Request {
    std::string target, authorization, host;
  };
  // Takes the next connection whose handshake the client completes, and reads its request.
  Request Next() {
    boost::system::error_code error;
    do {
      stream_ = std::make_unique<Stream>(acceptor_.accept(), tls_);
      stream_->handshake(boost::asio::ssl::stream_base::server, error);
    } while (error);
    boost::beast::flat_buffer buffer;
    boost::beast::http::request<boost::beast::http::string_body> request;
    boost::beast::http::read(*stream_, buffer, request, error);
    if (error)
      return Next();  // With TLS 1.3 a client refuses the certificate after the server's part.
    return {std::string(request.target()), std::string(request["Authorization"]),
            std::string(request["Host"])};
  }
  // Takes a connection whose handshake the client gives up.
  void RefuseNext() {
    Stream stream(acceptor_.accept(), tls_);
    boost::system::error_code error;
    stream.handshake(boost::asio::ssl::stream_base::server, error);
    char byte;  // See Next.
    if (!error) stream.read_some(boost::asio::buffer(&byte, 1), error);
    EXPECT_TRUE(error);
  }
  void Answer(const std::string& body, const char* status = "200 OK") {
    Write(absl::StrCat("HTTP/1.1 ", status,
                       "\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
                       "\r\nConnection: close\r\n\r\n", body));
    stream_.reset();
  }
  void BeginWatch() { Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); }
  void Send(const std::string& text) {
    Write(absl::StrCat(absl::Hex(text.size()), "\r\n", text, "\r\n"));
  }
  void EndWatch() {
    Write("0\r\n\r\n");
    stream_.reset();
  }
  void Cut() { stream_.reset(); }

 private:
  using Stream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;
  void Write(const std::string& bytes) { boost::asio::write(*stream_, boost::asio::buffer(bytes)); }

  const testing::TempFolder folder_;
  const std::unique_ptr<testing::TestCertificate> ca_, own_;
  boost::asio::io_context context_;
  boost::asio::ssl::context tls_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace continuo::gateway
