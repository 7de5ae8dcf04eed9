// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "services/gateway/workers/resolver.h"

namespace continuo::gateway {

// Asks for the A records of a name, and for AAAA where it has none, on a thread of its own. An
// answer without addresses is an answer; where no answer comes, the last one stays.
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
  // Waits for c-ares, or for a wake-up where no question is open.
  void Wait(void* channel, absl::Duration timeout);
  void Wake(char what);

  const std::string server_, name_;
  const int port_;
  const ResolverOptions options_;
  OnAddresses on_addresses_;
  int wake_fds_[2];                         // a pipe: 'r' refresh, 's' stop
  bool stopped_ = false, refresh_ = false;  // of the thread
  std::thread thread_;
};

}  // namespace continuo::gateway
