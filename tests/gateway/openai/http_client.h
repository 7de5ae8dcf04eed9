// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {

// A blocking HTTP client on one loopback connection that sends any bytes a test wants.
class HttpClient {
 public:
  using Response = boost::beast::http::response<boost::beast::http::string_body>;

  explicit HttpClient(int port) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(port)});
  }

  void Send(const std::string& bytes) { boost::asio::write(socket_, boost::asio::buffer(bytes)); }
  void Get(const std::string& path) {
    Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: test\r\n\r\n"));
  }
  // `headers` end with \r\n each.
  void Post(const std::string& path, const std::string& body, const std::string& headers = "") {
    Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: test\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
  // Sends the body in one chunk.
  void PostChunked(const std::string& path, const std::string& body) {
    Send(absl::StrCat("POST ", path,
                      " HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n",
                      absl::Hex(body.size()), "\r\n", body, "\r\n0\r\n\r\n"));
  }
  // The next response, complete; the status is 0 if there is none.
  Response Read(bool to_head = false) {
    boost::beast::http::response_parser<boost::beast::http::string_body> parser;
    parser.body_limit(boost::none);
    parser.skip(to_head);
    boost::system::error_code error;
    boost::beast::http::read(socket_, buffer_, parser, error);
    if (error) parser.get().result(0u);
    return parser.release();
  }
  // Everything up to the arrival of `text`, or to the end of the connection.
  std::string ReadUntil(const std::string& text) {
    std::string all;
    while (all.find(text) == std::string::npos) {
      char bytes[4096];
      boost::system::error_code error;
      const size_t size = socket_.read_some(boost::asio::buffer(bytes), error);
      all.append(bytes, size);
      if (error) break;
    }
    return all;
  }
  std::string ReadToEnd() { return ReadUntil("\xff this is never sent"); }
  // Sends nothing more; what the server sends is still read.
  void EndWrites() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }
  void Close() { socket_.close(); }

 private:
  boost::asio::io_context context_;
  boost::asio::ip::tcp::socket socket_{context_};
  boost::beast::flat_buffer buffer_;
};

}  // namespace continuo::gateway::openai
