// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/worker/hub/http_transfer.h"
#include "services/worker/hub/hub_api.h"
#include "services/worker/hub/hub_cache.h"
#include "services/worker/hub/hub_reference.h"
#include "services/worker/hub/hub_settings.h"

namespace continuo::hub {

// How a download goes on after a broken connection.
struct RetryOptions {
  // Connections in a row that bring no byte beyond what was there at any time before.
  int max_failures = 6;
  // All connections that break, and all bytes that come, as a multiple of the file's size.
  int max_attempts = 10000, max_times = 4;
  // Before each further connection; doubled after each failure in a row but the first.
  absl::Duration first_wait = absl::Seconds(1);
  std::function<void(absl::Duration)> wait = absl::SleepFor;
  HttpLimits limits;
};

// Called with the bytes that are there, as they grow.
using OnBytes = std::function<void(int64_t bytes)>;

// Brings a file's contents into the cache as BlobPath(file.digest), unless they are there.
// Continues what a process before left in PartPath, and a connection that breaks. The caller holds
// the blob's lock. DataLoss where size or digest are not those of `file`: what came is removed
// then. Otherwise errors as ErrorOf, and Unavailable for the network.
absl::Status Download(const HubSettings& settings, const HubReference& reference,
                      const HubCache& cache, const std::string& commit, const HubFile& file,
                      const RetryOptions& retry, const OnBytes& on_bytes);

}  // namespace continuo::hub
