// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "services/base/byte_budget.h"
#include "services/gateway/openai/http/byte_stream.h"
#include "services/gateway/openai/http/chunk.h"
#include "services/gateway/openai/http/http_limits.h"
#include "services/gateway/openai/http/http_message.h"
#include "services/gateway/openai/http/request_target.h"
#include "services/gateway/openai/http/signal.h"

namespace continuo::gateway::openai {

// State that the connections of one server share. Thread-safe.
struct HttpShared {
  explicit HttpShared(const HttpLimits& limits = {})
      : limits(limits), bodies(limits.max_bodies_bytes), answers(limits.max_answers_bytes) {}

  HttpLimits limits;
  ByteBudget bodies;                   // of requests
  ByteBudget answers;                  // in one piece
  std::atomic<bool> draining = false;  // no new connections
  std::atomic<bool> closing = false;   // each response is the last of its connection
};

class HttpConnection;

// Answers requests. Called on the connections' threads.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Looks at a header before the body is read. The target of each request is its path (PathOf).
  // Returns the answer if the body is not to be read.
  virtual std::optional<HttpResponse> Reject(const HttpRequest& header) = 0;
  // Answers the request with one call of Respond, or with BeginStream and EndStream. Calls
  // OnBodyDropped as soon as the body is freed.
  virtual boost::asio::awaitable<void> Handle(HttpConnection& connection, HttpRequest request) = 0;
  // The answer to an invalid request or one that has no room; called once for each. `header` is as
  // much of the request's as was read; its target may be as the client wrote it.
  virtual HttpResponse Error(const HttpRequest& header, int status, std::string_view message) = 0;
  // The headers that every answer to the request has, whoever makes it.
  virtual HttpHeaders CommonHeaders(const HttpRequest& header) = 0;
};

// One client's connection: HTTP/1.1 with its limits and deadlines, one request after the other.
// Runs on the one thread of its executor.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  // The pointers outlive the connection.
  HttpConnection(std::unique_ptr<ByteStream> stream, const boost::asio::any_io_executor& executor,
                 HttpShared* shared, HttpHandler* handler);

  // Serves until the connection ends.
  boost::asio::awaitable<void> Run();

  // Ends the connection at once.
  void Close();
  // Ends the connection as soon as it has nothing to do.
  void CloseIfIdle();

  // The methods below are for handlers. They send nothing once the client is gone.
  void OnBodyDropped() { body_.Release(); }
  // Frees the request, of which nothing is needed any more.
  void DropBody(HttpRequest& request) {
    request = {};
    OnBodyDropped();
  }
  boost::asio::awaitable<void> Respond(HttpResponse response);
  // Sends a body of unknown length, in pieces. `comment` is a piece without meaning, which keeps
  // the connection busy.
  boost::asio::awaitable<void> BeginStream(std::string_view content_type, HttpHeaders headers,
                                           std::string_view comment);
  // Sends a chunk of any length without a copy, and clears it. An empty one sends nothing.
  boost::asio::awaitable<void> SendStream(Chunk& piece);
  boost::asio::awaitable<void> SendStream(std::string_view piece);
  boost::asio::awaitable<void> EndStream();
  boost::asio::awaitable<void> SendComment();
  // From now on client_gone() turns true at once when the client leaves, and `signal` wakes.
  void WatchClient();
  // Waits for the signal, for `limit` at most; false if it did not come. A client that has ended
  // its side of the connection may have left or may still read, which only bytes sent to it tell:
  // it gets a comment, or the first characters of an answer.
  boost::asio::awaitable<bool> Wait(absl::Duration limit);
  bool client_gone() const { return gone_; }
  // The query of the request that is handled (QueryOf).
  std::string_view query() const { return query_; }
  Signal& signal() { return signal_; }
  const boost::asio::any_io_executor& executor() const { return executor_; }
  const HttpLimits& limits() const { return shared_->limits; }
  // Bounds the memory of all answers in one piece, until they are sent.
  ByteBudget& answers_budget() { return shared_->answers; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // Serves one request.
  boost::asio::awaitable<void> ServeOne();
  boost::asio::awaitable<bool> ReadHeader(Parser& parser);
  // Waits for the first byte of a request, and drops empty lines before it.
  boost::asio::awaitable<bool> ReadStart();
  boost::asio::awaitable<bool> ReadBody(Parser& parser);
  // Replaces a body with a Content-Encoding by what it stands for.
  std::optional<HttpProblem> Unpack(HttpRequest& request);
  // Reads more bytes into the buffer. False if none come any more or the buffer is full.
  boost::asio::awaitable<bool> Fill();
  boost::asio::awaitable<void> Watch();
  boost::asio::awaitable<void> WatchForReset();
  boost::asio::awaitable<void> Probe();
  // Answers a request whose header or body does not go on.
  boost::asio::awaitable<void> RejectUnfinished(const HttpRequest& header, std::string_view part);
  boost::asio::awaitable<void> Write(std::string_view bytes);
  // Answers and ends the connection so that the client can read the answer.
  boost::asio::awaitable<void> Reject(HttpResponse response);
  boost::asio::awaitable<void> RejectParse(const HttpRequest& header,
                                           const boost::system::error_code& error);
  boost::asio::awaitable<void> RejectForRoom(const HttpRequest& header);
  boost::asio::awaitable<void> Linger();
  std::string Head(int status, std::string_view content_type, const HttpHeaders& headers) const;

  // Reads and writes under way are cancelled when `limit` has passed.
  void Arm(absl::Duration limit);
  void Disarm();

  const std::unique_ptr<ByteStream> stream_;
  const boost::asio::any_io_executor executor_;
  HttpShared* const shared_;
  HttpHandler* const handler_;

  ByteBudget::Share body_;  // the bytes of the body that is being read or answered
  boost::asio::steady_timer deadline_;
  uint64_t deadline_number_ = 0;
  bool expired_ = false;

  Signal signal_;
  boost::beast::flat_buffer buffer_;  // received and not parsed
  std::array<char, 1024> watched_;
  bool watch_ = false;    // WatchClient was called
  bool reading_ = false;  // Watch has a read under way
  bool gone_ = false;
  bool input_ended_ = false;  // the client sends nothing more, and may still read
  bool idle_ = false;
  bool keep_alive_ = true;
  bool is_head_ = false;
  bool is_http_1_0_ = false;
  HttpHeaders common_;  // headers of each answer to the current request
  std::string query_;   // of the current request
  bool watches_reset_ = false;
  size_t num_probed_ = 0;  // characters of the answer that were sent ahead
  bool streams_ = false;   // BeginStream was called for the current request
  std::string comment_;    // of the current stream
};

}  // namespace continuo::gateway::openai
