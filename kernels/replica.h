// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/device_options.h"

namespace continuo::kernels {

struct ReplicaOptions {
  DeviceOptions device;
  int num_ranks = 1;  // 1, 2, 4 or 8; with CUDA as many as devices, or 1 for that
  // CUDA with several ranks: called when a failure cannot be ended because a device hangs, and with
  // it threads that wait for it. It ends the process. Null: the process is aborted.
  std::function<void(const absl::Status&)> on_stuck;
};

// The device memory that a rank needs, in bytes.
struct RankNeeds {
  int64_t weights = 0;
  int64_t scratch = 0;  // activations and logits
  int64_t block = 0;    // a KV block in all layers, with what goes with it; 0: nothing
  int64_t graphs = 0;   // captured graphs, where that was measured
};

// Numbers of KV blocks.
struct BlockRequest {
  int64_t min_blocks = 1;  // hold one sequence of the longest context
  int64_t max_blocks = 0;
  int64_t wanted = 0;  // 0: as many as there is room for
  // The memory that steps take of the devices is known, or will be before there are blocks: the
  // safety margin is then smaller.
  bool is_measured = false;
};

// The devices that the ranks of one model compute on.
class Replica {
 public:
  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<Communicator> communicator;  // destroyed before the device
  };

  virtual ~Replica() = default;
  virtual int num_ranks() const = 0;
  // Returns whether ranks have memory of their own, which PlanBlocks divides. Otherwise it is the
  // host's.
  virtual bool has_device_memory() const = 0;
  // Returns whether a row's results depend on that row alone, so that a fingerprint means
  // something.
  virtual bool is_exact() const = 0;
  // Returns where the ranks are, for logs; empty where it does not matter.
  virtual std::string placement() const { return ""; }

  // Called once for each rank, on a thread each, all at the same time. The rank gets num_threads of
  // the host's threads, its own included.
  virtual absl::StatusOr<Rank> MakeRank(int rank, int num_threads) = 0;
  // Returns the number of KV blocks that every rank has room for beside needs[rank], once all ranks
  // are made. ResourceExhausted is one line with the device and the numbers.
  virtual absl::StatusOr<int64_t> PlanBlocks(std::span<const RankNeeds> needs,
                                             const BlockRequest& request) = 0;
  // Returns the bytes that are free now on each rank's device; empty without has_device_memory.
  virtual absl::StatusOr<std::vector<int64_t>> FreeBytes() const { return std::vector<int64_t>(); }
};

// Sets environment variables that the libraries of these devices read, where they are not set.
// Called once, before any other call of kernels/ and while the process has one thread.
void PrepareDevices(const std::string& device);

// InvalidArgument names a device that this build or machine does not have, and what it has.
absl::StatusOr<std::unique_ptr<Replica>> MakeReplica(const ReplicaOptions& options);

}  // namespace continuo::kernels
