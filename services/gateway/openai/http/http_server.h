// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/openai/http/http_connection.h"
#include "services/gateway/openai/http/tls_context.h"

namespace continuo::gateway::openai {

struct HttpServerOptions {
  std::string listen;  // "host:port" or "[v6]:port"; port 0 takes a free one
  int num_threads = 2;
  HttpLimits limits;
  // Returns certificate and key; unset means no TLS. Called again every tls_poll_interval: new
  // connections get new files, and after an error the ones before stay.
  std::function<absl::StatusOr<TlsPem>()> read_tls;
  absl::Duration tls_poll_interval = absl::Seconds(1);
};

// Accepts connections and serves them on threads of its own, each connection on one of them.
// Thread-safe.
class HttpServer {
 public:
  // The server listens on return. The handler outlives it. Errors: UNAVAILABLE and INVALID_ARGUMENT
  // name the address, or are those of read_tls.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options,
                                                           HttpHandler* handler);
  // Ends open connections at once.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  int num_connections() const;

  // From now on each response tells its client to connect anew, perhaps to another gateway.
  // Everything is still accepted and served.
  void AnnounceDrain();
  // Accepts nothing more; connections end as soon as they have nothing to do.
  void BeginDrain();
  // Waits until all connections have ended, and ends the remaining ones at `deadline`. May be
  // called again.
  void Shutdown(absl::Time deadline);

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace continuo::gateway::openai
