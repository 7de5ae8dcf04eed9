// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>

namespace continuo::gateway::openai {

// One accepted connection as bytes, in the clear or over TLS. Used on the thread of its executor
// only; at most one read and one write at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Must complete before the first byte.
  virtual boost::asio::awaitable<void> Handshake(boost::system::error_code& error) = 0;
  // Reads at least one byte, or fails. The error is asio::error::eof if the other side sends
  // nothing more.
  virtual boost::asio::awaitable<size_t> ReadSome(boost::asio::mutable_buffer to,
                                                  boost::system::error_code& error) = 0;
  // Writes all bytes, or fails.
  virtual boost::asio::awaitable<void> Write(boost::asio::const_buffer from,
                                             boost::system::error_code& error) = 0;
  // Tells the other side that nothing more comes.
  virtual boost::asio::awaitable<void> EndWrites(boost::system::error_code& error) = 0;
  // Waits until the other side has reset the connection. May be called beside a read or a write.
  virtual boost::asio::awaitable<void> WaitForReset(boost::system::error_code& error) = 0;
  // Reads, writes and waits under way end with an error.
  virtual void Cancel() = 0;
};

std::unique_ptr<ByteStream> MakeTcpStream(boost::asio::ip::tcp::socket socket);
std::unique_ptr<ByteStream> MakeTlsStream(boost::asio::ip::tcp::socket socket,
                                          std::shared_ptr<boost::asio::ssl::context> context);

}  // namespace continuo::gateway::openai
