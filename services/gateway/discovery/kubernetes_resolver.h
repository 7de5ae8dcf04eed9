// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/discovery/kubernetes/api_stream.h"
#include "services/gateway/discovery/kubernetes/endpoint_slices.h"
#include "services/gateway/discovery/resolver.h"

namespace continuo::gateway {

// A Service of Kubernetes, whose ready endpoints are the addresses.
struct KubernetesTarget {
  ApiServer server;
  std::string name_space, service;
  std::string port;  // A number, or the name of one of the Service's ports.
};

// Lists the EndpointSlices of a Service and watches them, on a thread of its own: a change arrives
// at once. Where the API server does not answer, the last addresses stay, and it is asked again
// after growing times.
class KubernetesResolver : public Resolver {
 public:
  KubernetesResolver(KubernetesTarget target, const ResolverOptions& options);
  ~KubernetesResolver() override;
  void Start(OnAddresses on_addresses) override;
  void Stop() override;
  void Refresh() override;

 private:
  boost::asio::awaitable<void> Run();
  boost::asio::awaitable<absl::Status> List();
  boost::asio::awaitable<absl::Status> Watch();
  void Report();

  const KubernetesTarget target_;
  const ResolverOptions options_;
  const std::string path_;  // Of the list, with the selector of the Service.
  OnAddresses on_addresses_;
  boost::asio::io_context context_{1};
  std::thread thread_;

  // Only used by the thread.
  boost::asio::steady_timer retry_{context_};
  EndpointSlices slices_;
  std::string version_;  // Where a watch goes on; empty if a list is needed.
  bool heard_ = false;   // The watch has brought bytes.
  std::optional<std::vector<std::string>> reported_;
};

}  // namespace continuo::gateway
