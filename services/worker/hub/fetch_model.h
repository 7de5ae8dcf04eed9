// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/worker/hub/download.h"
#include "services/worker/hub/hub_reference.h"
#include "services/worker/hub/hub_settings.h"

namespace continuo::hub {

// One report of a fetch that goes on.
struct FetchProgress {
  enum class Kind : uint8_t {
    kFile,     // `done` of `total` bytes of `file` are there; told at begin, at end and in between
    kWaiting,  // another process writes `file`
    kOffline,  // the hub was not reached, what the cache has is used; `file` says why
  };
  Kind kind;
  std::string_view file;
  int64_t done = 0, total = 0;
};

struct FetchOptions {
  HubSettings settings;
  RetryOptions retry;
  const Clock* clock = nullptr;
  absl::Duration progress_interval = absl::Seconds(10);
  std::function<void(const FetchProgress&)> on_progress;
};

// Brings a model into the cache and returns its path there: a snapshot's folder, or a GGUF file in
// one. Only what a worker reads is fetched, and what is there stays. Where the hub is not reached,
// a revision that was fetched before is taken. Errors name the model and what to do: see ListFiles,
// ChooseFiles and Download; ResourceExhausted where the disk is too small.
absl::StatusOr<std::string> FetchModel(const HubReference& reference, const FetchOptions& options);

// Returns the path of a model that was fetched before, without asking anybody. NotFound where the
// cache does not have it, or not all of its weights.
absl::StatusOr<std::string> FindInCache(const HubReference& reference, const HubSettings& settings);

}  // namespace continuo::hub
