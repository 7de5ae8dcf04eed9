// SPDX-License-Identifier: Apache-2.0
#pragma once

// One request to the API server and its answer, on any stream of bytes. Who includes it pays for
// Boost.Beast; api_stream.h is what others use.

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/none.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace continuo::gateway {

using ApiRequest = boost::beast::http::request<boost::beast::http::empty_body>;

// The status of an answer whose code is not 200: OUT_OF_RANGE for 410, else FAILED_PRECONDITION,
// with the message of the Status object in `body`, or else its beginning.
absl::Status StatusOfAnswer(unsigned code, const std::string& body);

// Sends the request and passes the answer's body on as it comes; `renew` is called before each wait
// for the server. The results are those of GetStream. `Stream` is a stream of Asio's with both
// directions, which like `on_body` outlives the coroutine.
template <typename Stream>
boost::asio::awaitable<absl::Status> Exchange(
    Stream& stream, const ApiRequest& request, std::function<void()> renew,
    const std::function<absl::Status(std::string_view)>& on_body) {
  namespace asio = boost::asio;
  namespace http = boost::beast::http;
  constexpr unsigned kOk = 200;
  constexpr size_t kMaxErrorBytes = 4096;

  boost::system::error_code error;
  const auto report = [&error] { return asio::redirect_error(asio::use_awaitable, error); };
  const auto failed = [&error](const char* what) {
    return absl::UnavailableError(absl::StrCat(what, ": ", error.message()));
  };
  renew();
  co_await http::async_write(stream, request, report());
  if (error) co_return failed("the API server");

  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);  // Who takes the body has limits of its own.
  co_await http::async_read_header(stream, buffer, parser, report());
  if (error) co_return failed("the API server's answer");
  const unsigned code = parser.get().result_int();
  std::string refusal;
  std::array<char, 16384> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    renew();
    co_await http::async_read_some(stream, buffer, parser, report());
    if (error && error != http::error::need_buffer) co_return failed("the API server");
    const std::string_view part(bytes.data(), bytes.size() - parser.get().body().size);
    if (code == kOk) {
      absl::Status taken = on_body(part);
      if (!taken.ok()) co_return taken;
    } else {
      refusal.append(part.substr(0, kMaxErrorBytes - refusal.size()));
      if (refusal.size() == kMaxErrorBytes) break;
    }
  }
  if (code != kOk) co_return StatusOfAnswer(code, refusal);
  co_return absl::OkStatus();
}

}  // namespace continuo::gateway
