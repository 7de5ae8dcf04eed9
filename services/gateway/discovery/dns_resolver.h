// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "services/gateway/discovery/resolver.h"

namespace continuo::gateway {

// Queries the A records of a name, and AAAA where it has none, on its own thread. An answer without
// addresses counts; where no answer comes, the last one stays.
class DnsResolver : public Resolver {
 public:
  // `server` is host:port of a DNS server; empty takes the system's.
  DnsResolver(std::string server, std::string name, int port, const ResolverOptions& options);
  ~DnsResolver() override;
  void Start(OnAddresses on_addresses) override;
  void Stop() override;
  void Refresh() override;

 private:
  struct Query;

  void Run();
  // Processes events of the c-ares channel, or without one waits for a wake-up.
  void Wait(void* channel, absl::Duration timeout);
  // Wakes the thread: 'r' to refresh, 's' to stop.
  void Wake(char reason);

  const std::string server_, name_;
  const int port_;
  const ResolverOptions options_;
  OnAddresses on_addresses_;
  int wake_fds_[2];                         // A pipe that carries the reasons of Wake.
  bool stopped_ = false, refresh_ = false;  // Only used by the thread.
  std::thread thread_;
};

}  // namespace continuo::gateway
