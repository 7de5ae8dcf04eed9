// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/byte_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class TcpStream : public ByteStream {
 public:
  explicit TcpStream(tcp::socket socket) : socket_(std::move(socket)) {}

  asio::awaitable<void> Handshake(error_code& error) override {
    error = {};
    co_return;
  }
  asio::awaitable<size_t> ReadSome(asio::mutable_buffer to, error_code& error) override {
    co_return co_await socket_.async_read_some(to,
                                               asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<void> Write(asio::const_buffer from, error_code& error) override {
    co_await asio::async_write(socket_, from, asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<void> EndWrites(error_code& error) override {
    socket_.shutdown(tcp::socket::shutdown_send, error);
    co_return;
  }
  asio::awaitable<void> WaitForReset(error_code& error) override {
    co_await socket_.async_wait(tcp::socket::wait_error,
                                asio::redirect_error(asio::use_awaitable, error));
  }
  void Cancel() override {
    error_code ignored;
    socket_.cancel(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsStream : public ByteStream {
 public:
  TlsStream(tcp::socket socket, std::shared_ptr<asio::ssl::context> context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  asio::awaitable<void> Handshake(error_code& error) override {
    co_await stream_.async_handshake(asio::ssl::stream_base::server,
                                     asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<size_t> ReadSome(asio::mutable_buffer to, error_code& error) override {
    co_return co_await stream_.async_read_some(to,
                                               asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<void> Write(asio::const_buffer from, error_code& error) override {
    co_await asio::async_write(stream_, from, asio::redirect_error(asio::use_awaitable, error));
  }
  asio::awaitable<void> EndWrites(error_code& error) override {
    // Answers say where they end; the shutdown of TLS would wait for the client's.
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, error);
    co_return;
  }
  asio::awaitable<void> WaitForReset(error_code& error) override {
    co_await stream_.next_layer().async_wait(tcp::socket::wait_error,
                                             asio::redirect_error(asio::use_awaitable, error));
  }
  void Cancel() override {
    error_code ignored;
    stream_.next_layer().cancel(ignored);
  }

 private:
  const std::shared_ptr<asio::ssl::context> context_;
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<ByteStream> MakeTlsStream(tcp::socket socket,
                                          std::shared_ptr<asio::ssl::context> context) {
  return std::make_unique<TlsStream>(std::move(socket), std::move(context));
}

std::unique_ptr<ByteStream> MakeTcpStream(tcp::socket socket) {
  return std::make_unique<TcpStream>(std::move(socket));
}

}  // namespace continuo::gateway::openai
