// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// A LoRA adapter that all workers of a model are to load or to unload.
struct AdapterUpdate {
  enum class Kind { kLoad, kUnload };
  Kind kind = Kind::kLoad;
  // The model that it adapts; empty: the adapter's, where it is known, or the only one.
  std::string base;
  std::string name;
  std::string path;  // of its folder, as workers have it; for kLoad
};

// What became of an update at one worker.
struct WorkerOutcome {
  std::string worker;  // name, for people
  std::string address;
  absl::Status status;
};

struct AdapterOutcome {
  std::string base;
  std::vector<WorkerOutcome> workers;  // by name
  // OK where each worker has done it. Otherwise the code is that of all failures, or UNAVAILABLE
  // where they have several; the message names a worker.
  absl::Status status;
};

// Applies updates of adapters, free of gRPC. Thread-safe.
class AdapterUpdates {
 public:
  using Done = std::function<void(absl::StatusOr<AdapterOutcome>)>;
  // Ends the wait for workers soon; they may do all the same what was asked of them.
  using Cancel = std::function<void()>;

  virtual ~AdapterUpdates() = default;
  // Asks all workers of the model at the same time and waits for each, at most for `timeout`. Calls
  // `done` once, from any thread, perhaps before it returns. An error means that none was asked:
  // those of FindTargets.
  virtual Cancel Apply(AdapterUpdate update, absl::Duration timeout, Done done) = 0;
};

// The workers that an update is for: all of the model but those that drain, or left. One that takes
// no calls now has failed already. Settles update->base. NOT_FOUND: the model is unknown.
// INVALID_ARGUMENT: none is named and there are several, or it is an adapter. UNAVAILABLE: it has
// no worker.
absl::StatusOr<std::vector<WorkerOutcome>> FindTargets(const LoadSnapshot& snapshot,
                                                       AdapterUpdate* update);

// Joins the outcomes at the workers. A worker without the adapter has unloaded it, unless none had
// it: so an update that failed at some can be repeated.
AdapterOutcome JoinOutcomes(const AdapterUpdate& update, std::vector<WorkerOutcome> workers);

}  // namespace continuo::gateway
