// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resolvers find the addresses of workers: a fixed list, a DNS name that is queried periodically,
// or the EndpointSlices of a Service of Kubernetes, which are watched.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// Finds the addresses of one pool.
class Resolver {
 public:
  // Receives all addresses (host:port, sorted, each once) whenever they may have changed.
  using OnAddresses = std::function<void(std::vector<std::string>)>;

  virtual ~Resolver() = default;
  // Called once. The callback may run on this thread or on another one, but not after Stop.
  virtual void Start(OnAddresses on_addresses) = 0;
  virtual void Stop() = 0;
  // The last answer is likely to be out of date, so the next query is sent now. Thread-safe.
  virtual void Refresh() = 0;
};

// The times between queries, with their defaults.
struct ResolverOptions {
  // The time between two queries is the answer's TTL, clamped to these.
  absl::Duration min_interval = absl::Seconds(1);
  absl::Duration max_interval = absl::Seconds(5);
  // The minimum time between two queries after Refresh.
  absl::Duration refresh_interval = absl::Milliseconds(100);
  absl::Duration query_timeout = absl::Milliseconds(500);
  // The folder in which Kubernetes mounts the pod's token for its API.
  std::string_view service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

// `target` is one pool of --workers: "host:port,host:port", or "dns:///NAME:PORT", or
// "dns://SERVER:PORT/NAME:PORT" to query one server instead of the system's, or
// "kubernetes:///SERVICE.NAMESPACE:PORT" for the ready endpoints of a Service, with its namespace
// the pod's where none is named, and before the second slash an API server other than the pod's.
// INVALID_ARGUMENT says what is wrong with it, with the name of the flag that it comes from.
absl::StatusOr<std::unique_ptr<Resolver>> MakeResolver(const std::string& target,
                                                       const ResolverOptions& options = {},
                                                       std::string_view flag = "--workers");

}  // namespace continuo::gateway
