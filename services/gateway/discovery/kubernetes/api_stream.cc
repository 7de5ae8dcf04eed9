// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/api_stream.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/base/watched_file.h"
#include "services/gateway/discovery/kubernetes/api_exchange.h"

namespace continuo::gateway {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

constexpr uint64_t kMaxFileBytes = 1 << 20;

absl::StatusOr<std::string> ReadMounted(const ApiServer& server, const char* file) {
  const std::string path = absl::StrCat(server.service_account, "/", file);
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxFileBytes);
  if (!text.ok()) {
    return absl::UnavailableError(absl::StrCat(path, " ", text.status().message()));
  }
  return std::string(absl::StripAsciiWhitespace(*text));
}

// The message of a Status object, else the text's beginning.
std::string MessageOf(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    const auto message = json.find("message");
    if (message != json.end() && message->is_string()) return message->get<std::string>();
  }
  return body.substr(0, 200);
}

absl::Status Failed(const char* what, const error_code& error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", error.message()));
}

}  // namespace

absl::Status StatusOfAnswer(unsigned code, const std::string& body) {
  const std::string message = absl::StrCat("HTTP ", code, ": ", MessageOf(body));
  constexpr unsigned kGone = 410;
  if (code == kGone) return absl::OutOfRangeError(message);
  return absl::FailedPreconditionError(message);
}

asio::awaitable<absl::Status> GetStream(
    const ApiServer& server, const std::string& target, absl::Duration quiet,
    const std::function<absl::Status(std::string_view)>& on_body) {
  const absl::StatusOr<std::string> authorities = ReadMounted(server, "ca.crt");
  if (!authorities.ok()) co_return authorities.status();
  const absl::StatusOr<std::string> token = ReadMounted(server, "token");
  if (!token.ok()) co_return token.status();

  error_code error;
  const auto report = [&error] { return asio::redirect_error(asio::use_awaitable, error); };
  ssl::context tls(ssl::context::tls_client);
  tls.set_verify_mode(ssl::verify_peer);
  tls.add_certificate_authority(asio::buffer(*authorities), error);
  if (error) co_return Failed("ca.crt", error);

  const auto executor = co_await asio::this_coro::executor;
  const std::chrono::nanoseconds limit = absl::ToChronoNanoseconds(quiet);
  asio::ssl::stream<boost::beast::tcp_stream> stream(executor, tls);
  boost::beast::tcp_stream& tcp = stream.next_layer();
  stream.set_verify_callback(ssl::host_name_verification(server.host));
  error_code not_an_address;
  const asio::ip::address address = asio::ip::make_address(server.host, not_an_address);
  if (not_an_address) SSL_set_tlsext_host_name(stream.native_handle(), server.host.c_str());

  asio::ip::tcp::resolver resolver(executor);
  const auto endpoints = co_await resolver.async_resolve(server.host, server.port, report());
  if (error) co_return Failed("the API server's name", error);
  tcp.expires_after(limit);
  co_await tcp.async_connect(endpoints, report());
  if (error) co_return Failed("the API server", error);
  co_await stream.async_handshake(ssl::stream_base::client, report());
  if (error) co_return Failed("TLS of the API server", error);

  ApiRequest request(boost::beast::http::verb::get, target, 11);
  const std::string host = address.is_v6() ? absl::StrCat("[", server.host, "]") : server.host;
  request.set(boost::beast::http::field::host, absl::StrCat(host, ":", server.port));
  request.set(boost::beast::http::field::accept, "application/json");
  request.set(boost::beast::http::field::user_agent, "continuo-gateway");
  request.set(boost::beast::http::field::authorization, absl::StrCat("Bearer ", *token));
  co_return co_await Exchange(
      stream, request, [&tcp, limit] { tcp.expires_after(limit); }, on_body);
}

}  // namespace continuo::gateway
