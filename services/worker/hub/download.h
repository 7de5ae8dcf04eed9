// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/worker/hub/http_transfer.h"
#include "services/worker/hub/hub_api.h"
#include "services/worker/hub/hub_cache.h"
#include "services/worker/hub/hub_reference.h"
#include "services/worker/hub/hub_settings.h"

namespace continuo::hub {

// How a download goes on after a broken connection.
struct RetryOptions {
  int max_failures = 6;  // in a row without a byte more
  // Before the second try after a failure without a byte more, doubled for each one that follows.
  absl::Duration first_wait = absl::Seconds(1);
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
