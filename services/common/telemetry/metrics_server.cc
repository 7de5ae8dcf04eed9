// SPDX-License-Identifier: Apache-2.0
// MetricsServer of metrics.h: one coroutine per connection, all on one thread.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <string_view>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/net/listener.h"
#include "services/common/telemetry/metrics.h"

namespace continuo::common {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

namespace {

// The token of `authorization: Bearer TOKEN`; empty where there is none.
std::string_view BearerToken(const http::request<http::empty_body>& request) {
  constexpr std::string_view kScheme = "bearer ";
  const auto field = request[http::field::authorization];
  const std::string_view value(field.data(), field.size());
  if (!absl::EqualsIgnoreCase(
          absl::string_view(value.data(), std::min(value.size(), kScheme.size())),
          absl::string_view(kScheme.data(), kScheme.size()))) {
    return {};
  }
  return value.substr(kScheme.size());
}

}  // namespace

struct MetricsServer::Impl {
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables;
  std::function<bool()> healthy;
  std::function<bool(std::string_view)> may_read;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::thread thread;

  http::response<http::string_body> Answer(const http::request<http::empty_body>& request) const;
  asio::awaitable<void> Serve(tcp::socket socket) const;
  asio::awaitable<void> Accept();
};

http::response<http::string_body> MetricsServer::Impl::Answer(
    const http::request<http::empty_body>& request) const {
  http::response<http::string_body> response(http::status::ok, request.version());
  response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
  response.keep_alive(request.keep_alive());
  std::string path(request.target());
  path.resize(std::min(path.find('?'), path.size()));
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET, HEAD");
  } else if (path == "/metrics" && may_read && !may_read(BearerToken(request))) {
    response.result(http::status::unauthorized);
    response.set(http::field::www_authenticate, "Bearer");
    response.body() = "a token is needed: authorization: Bearer TOKEN\n";
  } else if (path == "/metrics") {
    response.body() = FormatMetrics(collectables);
  } else if (path == "/healthz") {
    const bool ok = !healthy || healthy();
    if (!ok) response.result(http::status::service_unavailable);
    response.body() = ok ? "ok\n" : "unhealthy\n";
  } else {
    response.result(http::status::not_found);
    response.body() = "not found: /metrics and /healthz are here\n";
  }
  response.prepare_payload();
  if (request.method() == http::verb::head) response.body().clear();
  return response;
}

asio::awaitable<void> MetricsServer::Impl::Serve(tcp::socket socket) const {
  beast::tcp_stream stream(std::move(socket));
  beast::flat_buffer buffer(16 << 10);  // The limit of a request's head.
  bool open = true;
  try {
    while (open) {
      http::request_parser<http::empty_body> parser;
      stream.expires_after(std::chrono::seconds(60));
      co_await http::async_read(stream, buffer, parser, asio::use_awaitable);
      open = parser.get().keep_alive();
      stream.expires_after(std::chrono::seconds(10));
      http::response<http::string_body> response = Answer(parser.get());
      co_await http::async_write(stream, response, asio::use_awaitable);
    }
  } catch (const boost::system::system_error&) {
    // The client left, was too slow, or does not speak HTTP. The connection ends.
  }
}

asio::awaitable<void> MetricsServer::Impl::Accept() {
  while (true) {
    boost::system::error_code error;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (!error) {
      asio::co_spawn(context, Serve(std::move(socket)), asio::detached);
      continue;
    }
    // Errors such as too many open files last for a while.
    asio::steady_timer pause(context, std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

MetricsServer::MetricsServer() : impl_(std::make_unique<Impl>()) {}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const std::string& listen, std::vector<std::shared_ptr<prometheus::Collectable>> collectables,
    std::function<bool()> healthy, std::function<bool(std::string_view)> may_read) {
  std::unique_ptr<MetricsServer> result(new MetricsServer);
  Impl& impl = *result->impl_;
  impl.collectables = std::move(collectables);
  impl.healthy = std::move(healthy);
  impl.may_read = std::move(may_read);

  if (absl::Status status = Listen(impl.acceptor, listen); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(status.message(), ", for metrics"));
  }
  result->port_ = impl.acceptor.local_endpoint().port();
  asio::co_spawn(impl.context, impl.Accept(), asio::detached);
  impl.thread = std::thread([&impl] { impl.context.run(); });
  return result;
}

void AddMetricsFlags(Flags& flags, std::string* listen, std::string* token_file) {
  flags.Address("metrics_listen", listen, "Address of /metrics and /healthz.");
  flags.Text("metrics_token_file", token_file,
             "File of tokens, one a line, of which a reader of /metrics needs one, as "
             "authorization: Bearer TOKEN. It is read again when it changes. Empty: none is "
             "needed. /healthz needs none.");
}

MetricsServer::~MetricsServer() {
  impl_->context.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

}  // namespace continuo::common
