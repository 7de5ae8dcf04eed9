// SPDX-License-Identifier: Apache-2.0
#pragma once

// A gRPC server as both programs need it: health, reflection, TLS, keepalive that tolerates client
// pings every 10 s without calls, limits.

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/tls.h"

namespace continuo::common {

struct GrpcServerOptions {
  // "host:port", "[v6]:port" or "unix:path"; port 0 takes a free one.
  std::string listen;
  TlsFiles tls;
  // Largest message that is taken from a client.
  int max_receive_bytes = 8 << 20;
  // Bound of the memory that gRPC keeps for all connections together; 0 is none.
  size_t max_buffer_bytes = 0;
  // Calls at a time on one connection; 0 is no limit.
  int max_concurrent_streams = 0;
  // After this a connection takes no new calls; its streams may go on for the grace. Spreads
  // clients over a growing set of pods.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration max_connection_age_grace = absl::InfiniteDuration();
  // Pings to a silent client, and the wait for the answer, until its connection counts as lost.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // Health names besides "", known from the start. All begin as `serving` says.
  std::vector<std::string> health_names;
  bool serving = true;
  // For what is missing above; called last.
  std::function<void(grpc::ServerBuilder&)> configure;
};

// Thread-safe. The destructor ends open calls at once.
class GrpcServer {
 public:
  // Listening on return. The services must outlive the server. INVALID_ARGUMENT or UNAVAILABLE
  // name the address or the TLS flag.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // The port in use; 0 for a unix socket.
  int port() const { return port_; }
  // For a client on this host: "127.0.0.1:port", or the unix address.
  std::string address() const;

  // Health of one name, "" included. Adds a name that is not known.
  void SetServing(const std::string& service, bool serving);
  // Health of every known name.
  void SetAllServing(bool serving);

  // Everything NOT_SERVING and no new calls at once; open calls may end until the deadline and are
  // cancelled then. Returns when all have ended. May be called again.
  void Shutdown(absl::Time deadline);

 private:
  GrpcServer() = default;

  std::string listen_;
  std::unique_ptr<ReloadedTls> tls_;  // the server's
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  absl::Mutex mutex_;
  std::set<std::string> health_names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::common
