// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gRPC server of both programs: health, reflection, TLS, limits, and keepalive for
// connections with calls that lets clients ping as they like.

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
  // The size of the largest message that is accepted from a client.
  int max_receive_bytes = 8 << 20;
  // The limit on the memory that gRPC keeps for all connections together; 0 is no limit.
  size_t max_buffer_bytes = 0;
  // The number of calls at a time on one connection; 0 is no limit.
  int max_concurrent_streams = 0;
  // A connection of this age takes no new calls; its streams may go on for the grace. This spreads
  // clients over a growing set of pods.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration max_connection_age_grace = absl::InfiniteDuration();
  // The time until a silent client with calls is pinged, and until a connection without an answer
  // is closed.
  absl::Duration keepalive_time = absl::Seconds(30);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // The names of the health service besides "". All start as `serving` says.
  std::vector<std::string> health_names;
  bool serving = true;
  // Called last, for settings that are missing above.
  std::function<void(grpc::ServerBuilder&)> configure;
};

// A running server. The destructor ends open calls at once. Thread-safe.
class GrpcServer {
 public:
  // The server listens on return. The services must outlive it. INVALID_ARGUMENT or UNAVAILABLE
  // name the address or the TLS flag.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const GrpcServerOptions& options, const std::vector<grpc::Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // The port in use; 0 for a unix socket.
  int port() const { return port_; }
  // The address for a client on this host: the host that was given, or loopback where that stands
  // for all, and the port; or the unix address.
  std::string address() const;

  // Sets the health of one name, which may be "". Adds a name that is not known.
  void SetServing(const std::string& service, bool serving);
  // Sets the health of every known name.
  void SetAllServing(bool serving);
  // Sets the names that are known beside those of the options and of SetServing, and may go again.
  // A new one has the health that SetAllServing set last; one that is left out is NOT_SERVING.
  void SetPassingNames(std::set<std::string> names);

  // Sets every name to NOT_SERVING and takes no new calls. Open calls may end until the deadline
  // and are cancelled then. Returns when all have ended. May be called again.
  void Shutdown(absl::Time deadline);

 private:
  GrpcServer() = default;

  std::string listen_;
  std::unique_ptr<ReloadedTls> tls_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  absl::Mutex mutex_;
  std::set<std::string> health_names_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> passing_names_ ABSL_GUARDED_BY(mutex_);  // none of health_names_
  bool all_serving_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::common
