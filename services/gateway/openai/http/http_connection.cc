// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/http_connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/rfc7230.hpp>
#include <boost/beast/http/status.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/gateway/openai/http/inflate.h"
#include "services/gateway/openai/http/request_target.h"

namespace continuo::gateway::openai {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr size_t kReadBytes = 64 << 10;
// The bytes that may be received ahead of the current answer.
constexpr size_t kMaxPipelined = 16 << 10;
// The bytes and the time for which a rejected client may go on sending.
constexpr size_t kMaxLinger = 32 << 20;
constexpr absl::Duration kLinger = absl::Seconds(2);
// The beginning of every answer.
constexpr std::string_view kVersion = "HTTP/1.1 ";

// A request of HTTP/1.2 or a later 1.x is one of 1.1 to whoever knows no later one (RFC 9110, 2.5).
// Changes the version in the request line, if that is there whole.
void ReadAsOnePointOne(asio::mutable_buffer bytes) {
  char* const begin = static_cast<char*>(bytes.data());
  const std::string_view text(begin, bytes.size());
  const std::string_view line = text.substr(0, text.find('\r'));
  if (line.size() == text.size() || !IsOtherVersion(line)) return;
  if (!line.substr(line.rfind(' ') + 1).starts_with("HTTP/1.") || line.back() < '2') return;
  begin[line.size() - 1] = '1';
}

}  // namespace

HttpConnection::HttpConnection(std::unique_ptr<ByteStream> stream,
                               const asio::any_io_executor& executor, HttpShared* shared,
                               HttpHandler* handler)
    : stream_(std::move(stream)),
      executor_(executor),
      shared_(shared),
      handler_(handler),
      body_(&shared->bodies),
      deadline_(executor),
      signal_(executor),
      buffer_(2 * kReadBytes) {}

void HttpConnection::Arm(absl::Duration limit) {
  expired_ = false;
  deadline_.expires_after(absl::ToChronoNanoseconds(limit));
  deadline_.async_wait([self = shared_from_this(), number = ++deadline_number_](error_code error) {
    if (error || number != self->deadline_number_) return;
    self->expired_ = true;
    self->stream_->Cancel();
  });
}

void HttpConnection::Disarm() {
  ++deadline_number_;
  deadline_.cancel();
}

void HttpConnection::Close() {
  gone_ = true;
  keep_alive_ = false;
  stream_->Cancel();
  signal_.Notify();
}

void HttpConnection::CloseIfIdle() {
  keep_alive_ = false;
  if (idle_) Close();
}

asio::awaitable<void> HttpConnection::Run() {
  Arm(limits().handshake_timeout);
  error_code error;
  co_await stream_->Handshake(error);
  Disarm();
  if (error) co_return;
  while (keep_alive_ && !gone_) co_await ServeOne();
  Disarm();
  stream_->Cancel();  // ends the watch
}

asio::awaitable<bool> HttpConnection::Fill() {
  if (reading_) {
    // Watch has a read under way and adds its bytes to the buffer.
    const size_t before = buffer_.size();
    while (reading_ && !gone_ && buffer_.size() == before) {
      co_await signal_.Wait(std::chrono::hours(1));
    }
    if (gone_) co_return false;
    if (buffer_.size() > before) co_return true;
  }
  const size_t room = std::min(kReadBytes, buffer_.max_size() - buffer_.size());
  if (room == 0 || gone_ || input_ended_) co_return false;
  error_code error;
  const size_t size = co_await stream_->ReadSome(buffer_.prepare(room), error);
  buffer_.commit(size);
  if (error == asio::error::eof) {
    input_ended_ = true;
  } else if (error) {
    gone_ = true;
  }
  co_return !error;
}

void HttpConnection::WatchClient() {
  watch_ = true;
  if (reading_ || gone_ || input_ended_) return;
  reading_ = true;
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->Watch(); }, asio::detached);
}

asio::awaitable<void> HttpConnection::Watch() {
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  while (true) {
    error_code error;
    const size_t size = co_await stream_->ReadSome(asio::buffer(watched_), error);
    const asio::mutable_buffer room = buffer_.prepare(size);
    std::copy_n(watched_.data(), size, static_cast<char*>(room.data()));
    buffer_.commit(size);
    if (error == asio::error::eof) {
      input_ended_ = true;
    } else if (error) {
      gone_ = true;
    }
    if (gone_ || input_ended_ || !watch_ || buffer_.size() >= kMaxPipelined) break;
    signal_.Notify();
  }
  reading_ = false;
  signal_.Notify();
}

asio::awaitable<void> HttpConnection::WatchForReset() {
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  error_code error;
  co_await stream_->WaitForReset(error);
  gone_ = true;
  signal_.Notify();
}

asio::awaitable<void> HttpConnection::Probe() {
  if (!watches_reset_) {
    watches_reset_ = true;
    asio::co_spawn(
        executor_, [self = shared_from_this()] { return self->WatchForReset(); }, asio::detached);
  }
  if (streams_) {
    co_await SendComment();
  } else if (num_probed_ < kVersion.size()) {
    co_await Write(kVersion.substr(num_probed_++, 1));
  }
}

asio::awaitable<bool> HttpConnection::Wait(absl::Duration limit) {
  if (input_ended_ && !watches_reset_) co_await Probe();
  if (input_ended_) limit = std::min(limit, limits().keepalive_interval);
  const bool woken = co_await signal_.Wait(absl::ToChronoNanoseconds(limit));
  // A stream's comments are its handler's.
  if (input_ended_ && (!watches_reset_ || (!woken && !streams_))) co_await Probe();
  co_return woken;
}

asio::awaitable<bool> HttpConnection::ReadStart() {
  const auto starts = [this](std::string_view text) {
    return std::string_view(static_cast<const char*>(buffer_.data().data()), buffer_.size())
        .starts_with(text);
  };
  idle_ = buffer_.size() == 0;
  Arm(idle_ ? limits().idle_timeout : limits().header_timeout);
  while (true) {
    while (starts("\r\n")) buffer_.consume(2);
    if (buffer_.size() > 0 && !(buffer_.size() == 1 && starts("\r"))) break;
    const bool received = co_await Fill();
    idle_ = false;
    if (!received || !keep_alive_) {
      keep_alive_ = false;
      co_return false;
    }
  }
  co_return true;
}

asio::awaitable<bool> HttpConnection::ReadHeader(Parser& parser) {
  if (!co_await ReadStart()) co_return false;
  Arm(limits().header_timeout);
  while (!parser.is_header_done()) {
    error_code error = http::error::need_more;
    ReadAsOnePointOne(buffer_.data());
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (!error) continue;
    if (error != http::error::need_more) {
      Disarm();
      co_await RejectParse(parser.get(), error);
      co_return false;
    }
    if (!co_await Fill()) {
      co_await RejectUnfinished(parser.get(), "header");
      co_return false;
    }
  }
  Disarm();
  co_return true;
}

asio::awaitable<bool> HttpConnection::ReadBody(Parser& parser) {
  parser.eager(true);
  Arm(limits().body_timeout);
  std::string& body = parser.get().body();
  const auto drop = [&] {
    Disarm();
    body = std::string();
    body_.Release();
  };
  // Memory of an announced size is reserved and not touched before it is received.
  const bool is_announced = parser.content_length().has_value();
  while (!parser.is_done()) {
    error_code error = http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (!body.empty() &&
        !body_.Resize(static_cast<int64_t>(is_announced ? body.size() : body.capacity()))) {
      drop();
      co_await RejectForRoom(parser.get());
      co_return false;
    }
    if (!error) continue;
    if (error != http::error::need_more) {
      drop();
      co_await RejectParse(parser.get(), error);
      co_return false;
    }
    if (!co_await Fill()) {
      drop();
      co_await RejectUnfinished(parser.get(), "body");
      co_return false;
    }
  }
  Disarm();
  co_return true;
}

asio::awaitable<void> HttpConnection::RejectForRoom(const HttpRequest& header) {
  HttpResponse response = handler_->Error(header, 503, "too many bodies are being received");
  response.headers.emplace_back("Retry-After", "1");
  co_await Reject(std::move(response));
}

asio::awaitable<void> HttpConnection::RejectUnfinished(const HttpRequest& header,
                                                       std::string_view part) {
  keep_alive_ = false;
  const std::string name(part);
  if (expired_) {
    gone_ = false;
    co_await Reject(
        handler_->Error(header, 408, absl::StrCat("the request's ", name, " took too long")));
  } else if (input_ended_) {
    co_await Reject(handler_->Error(header, 400,
                                    absl::StrCat("the request's ", name, " ended before its end")));
  } else if (!gone_) {
    co_await Reject(handler_->Error(
        header, 431, "the extensions of a chunk or the trailers of the body are too large"));
  }
}

asio::awaitable<void> HttpConnection::RejectParse(const HttpRequest& header,
                                                  const error_code& error) {
  if (error == http::error::body_limit) {
    co_await Reject(handler_->Error(
        header, 413, absl::StrCat("the body is larger than ", limits().max_body_bytes, " bytes")));
  } else if (error == http::error::header_limit) {
    const bool is_line_read = !header.target().empty();
    co_await Reject(
        handler_->Error(header, is_line_read ? 431 : 414,
                        absl::StrCat(is_line_read ? "the header" : "the request line",
                                     " is larger than ", limits().max_header_bytes, " bytes")));
  } else {
    const std::string_view text(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    if (error == http::error::bad_version && IsOtherVersion(text.substr(0, text.find('\r')))) {
      co_await Reject(handler_->Error(header, 505, "HTTP/1.1 and HTTP/1.0 are spoken here"));
    } else {
      co_await Reject(handler_->Error(
          header, 400, absl::StrCat("this is no valid HTTP/1.1 request: ", error.message())));
    }
  }
}

asio::awaitable<void> HttpConnection::ServeOne() {
  watch_ = streams_ = is_head_ = is_http_1_0_ = false;
  num_probed_ = 0;
  common_.clear();
  std::optional<Parser> parser(std::in_place);
  parser->header_limit(limits().max_header_bytes);
  parser->body_limit(limits().max_body_bytes);
  if (!co_await ReadHeader(*parser)) {
    keep_alive_ = false;
    co_return;
  }
  HttpRequest& header = parser->get();
  is_head_ = header.method() == http::verb::head;
  is_http_1_0_ = header.version() < 11;
  if (!header.keep_alive()) keep_alive_ = false;
  common_ = handler_->CommonHeaders(header);
  if (std::optional<HttpProblem> problem = CheckHeader(header)) {
    co_await Reject(handler_->Error(header, problem->status, problem->message));
    co_return;
  }
  const std::string_view target(header.target().data(), header.target().size());
  query_ = QueryOf(target);
  header.target(PathOf(target));

  std::optional<HttpResponse> rejection = handler_->Reject(header);
  const auto expect = is_http_1_0_ ? "" : header[http::field::expect];
  const bool continues = boost::beast::iequals(expect, "100-continue");
  if (!rejection.has_value() && !expect.empty() && !continues) {
    rejection = handler_->Error(header, 417, "Expect is understood only as 100-continue");
  }
  if (rejection.has_value()) {
    if (parser->is_done()) {
      co_await Respond(*std::move(rejection));
    } else {
      co_await Reject(*std::move(rejection));
    }
    co_return;
  }
  if (!parser->is_done()) {
    if (!shared_->bodies.HasRoomFor(parser->content_length().value_or(1))) {
      co_await RejectForRoom(header);
      co_return;
    }
    // A client that has sent its body already does not wait.
    if (continues && buffer_.size() == 0) co_await Write("HTTP/1.1 100 Continue\r\n\r\n");
    // The parser adds trailers to the header, where they would count as fields of the request.
    const http::request_header<> fields = header;
    if (!co_await ReadBody(*parser)) {
      keep_alive_ = false;
      co_return;
    }
    static_cast<http::request_header<>&>(header) = fields;
  }
  HttpRequest request = parser->release();
  parser.reset();
  if (std::optional<HttpProblem> problem = Unpack(request)) {
    body_.Release();
    HttpResponse response = handler_->Error(request, problem->status, problem->message);
    if (problem->status == 503) response.headers.emplace_back("Retry-After", "1");
    co_await Respond(std::move(response));
    co_return;
  }
  co_await handler_->Handle(*this, std::move(request));
  body_.Release();
}

std::optional<HttpProblem> HttpConnection::Unpack(HttpRequest& request) {
  const auto coding = request[http::field::content_encoding];
  const auto packed = static_cast<int64_t>(request.body().size());
  if (packed == 0) return std::nullopt;
  std::optional<HttpProblem> problem = Inflate(
      {coding.data(), coding.size()}, limits().max_body_bytes,
      [&](size_t size) { return body_.Resize(packed + static_cast<int64_t>(size)); },
      &request.body());
  if (!problem.has_value()) body_.Resize(static_cast<int64_t>(request.body().capacity()));
  return problem;
}

std::string HttpConnection::Head(int status, std::string_view content_type,
                                 const HttpHeaders& headers) const {
  std::string head = absl::StrCat(
      std::string(kVersion.substr(num_probed_)), status, " ",
      std::string(http::obsolete_reason(http::int_to_status(status))),
      "\r\nDate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", absl::Now(), absl::UTCTimeZone()),
      "\r\n");
  if (!content_type.empty()) {
    absl::StrAppend(&head, "Content-Type: ", std::string(content_type), "\r\n");
  }
  for (const HttpHeaders* list : {&headers, &common_}) {
    for (const auto& [name, value] : *list) absl::StrAppend(&head, name, ": ", value, "\r\n");
  }
  if (!keep_alive_) {
    head.append("Connection: close\r\n");
  } else if (is_http_1_0_) {
    head.append("Connection: keep-alive\r\n");
  }
  return head;
}

asio::awaitable<void> HttpConnection::Respond(HttpResponse response) {
  if (shared_->closing) keep_alive_ = false;
  std::string bytes = Head(response.status, response.content_type, response.headers);
  size_t size = response.body.size();
  for (const std::string& piece : response.more) size += piece.size();
  if (response.status != 204) absl::StrAppend(&bytes, "Content-Length: ", size, "\r\n");
  bytes.append("\r\n");
  if (!is_head_) {
    bytes.append(response.body);
    // Small pieces are sent together.
    for (std::string& piece : response.more) {
      if (bytes.size() + piece.size() <= kReadBytes) {
        bytes.append(piece);
      } else {
        co_await Write(bytes);
        bytes = std::move(piece);
      }
      piece = std::string();
    }
  }
  co_await Write(bytes);
}

asio::awaitable<void> HttpConnection::BeginStream(std::string_view content_type,
                                                  HttpHeaders headers, std::string_view comment) {
  // A client of HTTP/1.0 knows no chunks: its stream ends with the connection.
  if (shared_->closing || is_http_1_0_) keep_alive_ = false;
  if (!is_http_1_0_) headers.emplace_back("Transfer-Encoding", "chunked");
  const std::string head = Head(200, content_type, headers) + "\r\n";
  streams_ = true;
  comment_ = comment;
  co_await Write(head);
}

asio::awaitable<void> HttpConnection::SendStream(Chunk& piece) {
  // An empty chunk would end the body.
  if (piece.empty()) co_return;
  // GCC 12 evaluates both operands of a conditional within co_await, and Close moves the text.
  const std::string_view bytes = is_http_1_0_ ? piece.text() : piece.Close();
  co_await Write(bytes);
  piece.clear();
}

asio::awaitable<void> HttpConnection::SendStream(std::string_view piece) {
  Chunk chunk(piece);
  co_await SendStream(chunk);
}

asio::awaitable<void> HttpConnection::SendComment() { co_await SendStream(comment_); }

asio::awaitable<void> HttpConnection::EndStream() {
  if (!is_http_1_0_) co_await Write("0\r\n\r\n");
}

asio::awaitable<void> HttpConnection::Write(std::string_view bytes) {
  // Writes in pieces, so that the deadline bounds the time without progress, whatever the size.
  while (!bytes.empty() && !gone_) {
    const std::string_view piece = bytes.substr(0, kReadBytes);
    bytes.remove_prefix(piece.size());
    Arm(limits().write_timeout);
    error_code error;
    co_await stream_->Write(asio::buffer(piece.data(), piece.size()), error);
    Disarm();
    if (error) gone_ = true;
  }
}

asio::awaitable<void> HttpConnection::Reject(HttpResponse response) {
  keep_alive_ = false;
  co_await Respond(std::move(response));
  co_await Linger();
}

asio::awaitable<void> HttpConnection::Linger() {
  // A connection that is closed with bytes unread is reset, and the reset may overtake the answer.
  error_code error;
  co_await stream_->EndWrites(error);
  Arm(kLinger);
  size_t taken = 0;
  while (!gone_ && taken < kMaxLinger) {
    buffer_.consume(buffer_.size());
    if (!co_await Fill()) break;
    taken += buffer_.size();
  }
  Disarm();
}

}  // namespace continuo::gateway::openai
