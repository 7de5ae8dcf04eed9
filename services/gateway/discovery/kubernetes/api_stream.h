// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace continuo::gateway {

// The API server of the cluster, and how a pod is known to it.
struct ApiServer {
  std::string host;  // A name or an address, without brackets.
  std::string port;
  // The folder that Kubernetes mounts: `ca.crt`, `token` and `namespace`. It is read for each
  // request, since tokens are renewed.
  std::string service_account = "/var/run/secrets/kubernetes.io/serviceaccount";
};

// Sends GET `target` over TLS on a connection of its own and passes the body on as it comes; a
// connection that brings nothing for `quiet` is given up. The result is OK at the body's end,
// UNAVAILABLE where the connection or the files fail, the status of `on_body` where that fails,
// OUT_OF_RANGE for 410 and FAILED_PRECONDITION for other answers than 200, with the server's
// message. Runs on the coroutine's executor.
boost::asio::awaitable<absl::Status> GetStream(
    const ApiServer& server, const std::string& target, absl::Duration quiet,
    const std::function<absl::Status(std::string_view)>& on_body);

}  // namespace continuo::gateway
