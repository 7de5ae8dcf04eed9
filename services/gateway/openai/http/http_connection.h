// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/openai/http/byte_stream.h"
#include "services/gateway/openai/http/http_limits.h"
#include "services/gateway/openai/http/signal.h"

namespace continuo::gateway::openai {

// What the connections of one server share. Thread-safe.
struct HttpShared {
  HttpLimits limits;
  std::atomic<int64_t> bodies_bytes = 0;
  std::atomic<bool> draining = false;  // no new connections
  std::atomic<bool> closing = false;   // each response is the last of its connection
};

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  std::vector<std::string> more;  // of the body; each is let go of when it is sent
};

// The room that one body takes of what all bodies together may. Not thread-safe.
class BodyRoom {
 public:
  explicit BodyRoom(HttpShared* shared) : shared_(shared) {}
  BodyRoom(const BodyRoom&) = delete;
  BodyRoom& operator=(const BodyRoom&) = delete;
  ~BodyRoom() { Release(); }

  // Whether there is room for so much more now; takes none.
  bool HasFor(uint64_t bytes) const;
  // The body has grown to `bytes`; false where that is more than there is room for.
  bool GrowTo(uint64_t bytes);
  void Release() { GrowTo(0); }

 private:
  HttpShared* const shared_;
  int64_t bytes_ = 0;
};

class HttpConnection;

// What is served. Called on the connections' threads.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Looks at a header before the body is read: what to answer instead of reading it.
  virtual std::optional<HttpResponse> Refuse(const HttpRequest& header) = 0;
  // Answers the request with one call of Respond, or with BeginStream and EndStream. Tells the
  // connection as soon as the body is let go of.
  virtual boost::asio::awaitable<void> Handle(HttpConnection& connection, HttpRequest request) = 0;
  // The answer to what is no valid request, or for which there is no room; called once for each.
  virtual HttpResponse Error(int status, std::string_view message) = 0;
};

// One client's connection: HTTP/1.1 with its limits and deadlines, one request after the other. All
// of it runs on the one thread of its executor.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // Everything passed outlives the connection.
  HttpConnection(std::unique_ptr<ByteStream> stream, const boost::asio::any_io_executor& executor,
                 HttpShared* shared, HttpHandler* handler);

  // Serves until the connection ends.
  boost::asio::awaitable<void> Run();

  // The connection ends at once.
  void Close();
  // It ends when it has nothing to do.
  void CloseIfIdle();

  // For handlers. Nothing is sent any more once the client is gone.
  void OnBodyDropped() { body_room_.Release(); }
  boost::asio::awaitable<void> Respond(HttpResponse response);
  // A body of unknown length, in pieces.
  boost::asio::awaitable<void> BeginStream(std::string_view content_type, HttpHeaders headers);
  boost::asio::awaitable<void> SendStream(std::string_view piece);
  boost::asio::awaitable<void> EndStream();
  // From now on client_gone() tells at once when the client has left, and `signal` wakes.
  void WatchClient();
  bool client_gone() const { return gone_; }
  Signal& signal() { return signal_; }
  const boost::asio::any_io_executor& executor() const { return executor_; }
  const HttpLimits& limits() const { return shared_->limits; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // One request and its answer.
  boost::asio::awaitable<void> ServeOne();
  boost::asio::awaitable<bool> ReadHeader(Parser& parser);
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  // More bytes in the buffer; false at the end of the connection or where it is full.
  boost::asio::awaitable<bool> Fill();
  boost::asio::awaitable<void> Watch();
  boost::asio::awaitable<void> Write(std::string_view bytes);
  // Answers and ends the connection, in such a way that the client can read the answer.
  boost::asio::awaitable<void> Reject(HttpResponse response);
  boost::asio::awaitable<void> RejectParse(const boost::system::error_code& error);
  boost::asio::awaitable<void> RejectForRoom();
  boost::asio::awaitable<void> Linger();
  std::string Head(int status, std::string_view content_type, const HttpHeaders& headers) const;

  // What is under way ends when the time has passed.
  void Arm(absl::Duration limit);
  void Disarm();

  const std::unique_ptr<ByteStream> stream_;
  const boost::asio::any_io_executor executor_;
  HttpShared* const shared_;
  HttpHandler* const handler_;

  BodyRoom body_room_;
  boost::asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;
  bool expired_ = false;

  Signal signal_;
  boost::beast::flat_buffer buffer_;  // received and not parsed
  std::array<char, 1024> watched_;
  bool watch_ = false;    // the client is to be watched
  bool reading_ = false;  // by Watch
  bool gone_ = false;
  bool idle_ = false;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool chunked_ = true;
};

}  // namespace continuo::gateway::openai
