// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "services/base/check.h"
#include "services/gateway/openai/http/byte_stream.h"

namespace continuo::gateway::openai {

// The client's end of a MemoryStream. Outlives it.
struct MemoryClient {
  std::string input;   // not read by the server yet
  bool ended = false;  // nothing follows the input
  std::string output;
  bool output_ended = false;
  size_t piece_bytes = std::numeric_limits<size_t>::max();   // that one read gets at most
  size_t output_limit = std::numeric_limits<size_t>::max();  // then writes fail
};

// One connection without a socket. Everything takes a turn of the executor, so that connections
// take turns at it.
class MemoryStream : public ByteStream {
 public:
  MemoryStream(const boost::asio::any_io_executor& executor, MemoryClient* client)
      : client_(client), news_(executor) {
    news_.expires_at(std::chrono::steady_clock::time_point::max());
  }

  // Called after a change of the client's side.
  void Notify() { news_.cancel(); }

  boost::asio::awaitable<void> Handshake(boost::system::error_code& error) override {
    error = {};
    co_return;
  }
  boost::asio::awaitable<size_t> ReadSome(boost::asio::mutable_buffer to,
                                          boost::system::error_code& error) override {
    CONTINUO_CHECK(!std::exchange(reading_, true));
    co_await boost::asio::post(news_.get_executor(), boost::asio::use_awaitable);
    const size_t cancels = num_cancels_;
    while (client_->input.empty() && !client_->ended && cancels == num_cancels_) {
      boost::system::error_code ignored;
      co_await news_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    }
    reading_ = false;
    if (cancels != num_cancels_) {
      error = boost::asio::error::operation_aborted;
      co_return 0;
    }
    const size_t size = std::min({client_->input.size(), client_->piece_bytes, to.size()});
    error = size == 0 ? boost::asio::error::eof : boost::system::error_code();
    std::memcpy(to.data(), client_->input.data(), size);
    client_->input.erase(0, size);
    co_return size;
  }
  boost::asio::awaitable<void> Write(boost::asio::const_buffer from,
                                     boost::system::error_code& error) override {
    CONTINUO_CHECK(!std::exchange(writing_, true) && !client_->output_ended);
    co_await boost::asio::post(news_.get_executor(), boost::asio::use_awaitable);
    writing_ = false;
    const size_t size = std::min(from.size(), client_->output_limit - client_->output.size());
    client_->output.append(static_cast<const char*>(from.data()), size);
    error = size < from.size() ? boost::asio::error::connection_reset : boost::system::error_code();
  }
  boost::asio::awaitable<void> EndWrites(boost::system::error_code& error) override {
    client_->output_ended = true;
    error = {};
    co_return;
  }
  // The client that has ended its side reads on.
  boost::asio::awaitable<void> WaitForReset(boost::system::error_code& error) override {
    const size_t cancels = num_cancels_;
    while (cancels == num_cancels_) {
      boost::system::error_code ignored;
      co_await news_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    }
    error = boost::asio::error::operation_aborted;
  }
  void Cancel() override {
    ++num_cancels_;
    Notify();
  }

 private:
  MemoryClient* const client_;
  boost::asio::steady_timer news_;
  size_t num_cancels_ = 0;
  bool reading_ = false, writing_ = false;
};

}  // namespace continuo::gateway::openai
