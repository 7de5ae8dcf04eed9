// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/http_server.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "services/base/net/listener.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/http/byte_stream.h"

namespace continuo::gateway::openai {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::Impl {
  // One thread and the connections that live on it.
  struct Loop {
    asio::io_context context{1};
    asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
    std::set<std::shared_ptr<HttpConnection>> connections;
    std::thread thread;
  };

  Impl(const HttpServerOptions& options, HttpHandler* handler)
      : options(options), handler(handler), shared(options.limits) {
    for (int i = 0; i < std::max(options.num_threads, 1); ++i) {
      loops.push_back(std::make_unique<Loop>());
    }
    acceptor.emplace(loops[0]->context);
  }

  asio::awaitable<void> Accept();
  // Reads certificate and key, and makes a context of them if they are new.
  absl::Status LoadTls();
  asio::awaitable<void> WatchTls();
  void Serve(Loop& loop, tcp::socket socket);
  void CountConnection(int change) {
    absl::MutexLock lock(&mutex);
    num_connections += change;
  }
  // Calls the function on every loop's own thread.
  template <typename Function>
  void ForEachConnection(Function function) {
    for (const auto& loop : loops) {
      asio::post(loop->context, [&loop = *loop, function] {
        // A copy, since the function may end a connection, which removes it from the set.
        const auto connections = loop.connections;
        for (const auto& connection : connections) function(*connection);
      });
    }
  }

  const HttpServerOptions options;
  HttpHandler* const handler;
  HttpShared shared;
  std::vector<std::unique_ptr<Loop>> loops;
  std::optional<tcp::acceptor> acceptor;  // belongs to the first loop

  TlsPem pem;  // belongs to the first loop

  absl::Mutex mutex;
  std::shared_ptr<asio::ssl::context> tls ABSL_GUARDED_BY(mutex);  // null without TLS
  int num_connections ABSL_GUARDED_BY(mutex) = 0;
};

asio::awaitable<void> HttpServer::Impl::Accept() {
  for (size_t next = 0; acceptor->is_open(); next = (next + 1) % loops.size()) {
    Loop& loop = *loops[next];
    tcp::socket socket(loop.context);
    error_code error;
    co_await acceptor->async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      // Counted here, so that the limit holds whatever the loops do.
      CountConnection(1);
      asio::post(loop.context, [this, &loop, socket = std::move(socket)]() mutable {
        Serve(loop, std::move(socket));
      });
      continue;
    }
    if (error == asio::error::operation_aborted) co_return;
    // An error such as too many open files lasts for a while.
    asio::steady_timer pause(loops[0]->context, std::chrono::milliseconds(100));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

absl::Status HttpServer::Impl::LoadTls() {
  ASSIGN_OR_RETURN(TlsPem now, options.read_tls());
  if (now == pem) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto context, MakeTlsContext(now));
  pem = std::move(now);
  absl::MutexLock lock(&mutex);
  tls = std::move(context);
  return absl::OkStatus();
}

asio::awaitable<void> HttpServer::Impl::WatchTls() {
  asio::steady_timer timer(loops[0]->context);
  while (true) {
    timer.expires_after(absl::ToChronoNanoseconds(options.tls_poll_interval));
    co_await timer.async_wait(asio::use_awaitable);
    // Files that are bad now may be good the next time.
    LoadTls().IgnoreError();
  }
}

void HttpServer::Impl::Serve(Loop& loop, tcp::socket socket) {
  bool full;
  std::shared_ptr<asio::ssl::context> context;
  {
    absl::MutexLock lock(&mutex);
    context = tls;
    full = num_connections > shared.limits.max_connections;
  }
  error_code ignored;
  if (full || shared.draining) {
    CountConnection(-1);
    // With TLS the client gets no answer: a handshake would be wasted work.
    if (context != nullptr) return;
    // Does not wait: bytes that the socket does not take at once are not sent.
    const HttpResponse response =
        handler->Error(HttpRequest(), 503, "too many connections are open");
    const std::string bytes = absl::StrCat(
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
        "Content-Type: application/json\r\nContent-Length: ",
        response.body.size(), "\r\n\r\n", response.body);
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(bytes), ignored);
    return;
  }
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<HttpConnection>(
      context == nullptr ? MakeTcpStream(std::move(socket))
                         : MakeTlsStream(std::move(socket), std::move(context)),
      loop.context.get_executor(), &shared, handler);
  loop.connections.insert(connection);
  asio::co_spawn(loop.context, connection->Run(),
                 [this, &loop, connection](std::exception_ptr /*out of memory*/) {
                   connection->Close();
                   loop.connections.erase(connection);
                   CountConnection(-1);
                 });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              HttpHandler* handler) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Impl>(options, handler)));
  Impl& impl = *server->impl_;
  if (absl::Status status = Listen(*impl.acceptor, options.listen); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("--http_listen: ", status.message()));
  }
  const int port = impl.acceptor->local_endpoint().port();
  if (options.read_tls) {
    RETURN_IF_ERROR(impl.LoadTls());
    asio::co_spawn(impl.loops[0]->context, impl.WatchTls(), asio::detached);
  }
  asio::co_spawn(impl.loops[0]->context, impl.Accept(), asio::detached);
  server->port_ = port;
  for (const auto& loop : impl.loops) {
    loop->thread = std::thread([&context = loop->context] { context.run(); });
  }
  return server;
}

int HttpServer::num_connections() const {
  absl::MutexLock lock(&impl_->mutex);
  return impl_->num_connections;
}

void HttpServer::AnnounceDrain() { impl_->shared.closing = true; }

void HttpServer::BeginDrain() {
  AnnounceDrain();
  impl_->shared.draining = true;
  asio::post(impl_->loops[0]->context, [impl = impl_.get()] {
    error_code ignored;
    impl->acceptor->close(ignored);
  });
  impl_->ForEachConnection([](HttpConnection& connection) { connection.CloseIfIdle(); });
}

void HttpServer::Shutdown(absl::Time deadline) {
  BeginDrain();
  const auto none = [](int* number) { return *number == 0; };
  {
    absl::MutexLock lock(&impl_->mutex);
    impl_->mutex.AwaitWithDeadline(absl::Condition(+none, &impl_->num_connections), deadline);
  }
  impl_->ForEachConnection([](HttpConnection& connection) { connection.Close(); });
  absl::MutexLock lock(&impl_->mutex);
  impl_->mutex.Await(absl::Condition(+none, &impl_->num_connections));
}

HttpServer::~HttpServer() {
  if (port_ != 0) Shutdown(absl::InfinitePast());
  for (const auto& loop : impl_->loops) {
    loop->context.stop();
    if (loop->thread.joinable()) loop->thread.join();
  }
}

}  // namespace continuo::gateway::openai
