// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

namespace continuo::gateway::openai {

// Wakes one coroutine. Used on the executor's thread only. A notification that nobody waits for
// is kept for the next wait.
class Signal {
 public:
  explicit Signal(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  void Notify() {
    notified_ = true;
    timer_.cancel();
  }
  // False if no notification came within `limit`.
  boost::asio::awaitable<bool> Wait(std::chrono::nanoseconds limit) {
    if (!notified_) {
      timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit));
      boost::system::error_code ignored;
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    }
    co_return std::exchange(notified_, false);
  }

 private:
  boost::asio::steady_timer timer_;
  bool notified_ = false;
};

}  // namespace continuo::gateway::openai
