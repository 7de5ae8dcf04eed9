// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the workers are: a fixed list, or the addresses behind a DNS name, asked again and again.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace continuo::gateway {

class Resolver {
 public:
  // Gets all addresses (host:port, sorted, each once), every time they may have changed.
  using OnAddresses = std::function<void(std::vector<std::string>)>;

  virtual ~Resolver() = default;
  // Called once. The callback is not called after Stop.
  virtual void Start(OnAddresses on_addresses) = 0;
  virtual void Stop() = 0;
  // An answer is likely to be out of date: ask again now. Thread-safe.
  virtual void Refresh() = 0;
};

struct ResolverOptions {
  // Between two questions: the answer's TTL, within these.
  absl::Duration min_interval = absl::Seconds(1);
  absl::Duration max_interval = absl::Seconds(5);
  // After Refresh, at the earliest this long after the last question.
  absl::Duration refresh_interval = absl::Milliseconds(100);
  absl::Duration query_timeout = absl::Milliseconds(500);
};

// --workers: "host:port,host:port", or "dns:///NAME:PORT", or "dns://SERVER:PORT/NAME:PORT" to ask
// one server instead of the system's. INVALID_ARGUMENT says what is wrong with it.
absl::StatusOr<std::unique_ptr<Resolver>> MakeResolver(const std::string& target,
                                                       const ResolverOptions& options = {});

}  // namespace continuo::gateway
