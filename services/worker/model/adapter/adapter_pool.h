// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/base/confined_folder.h"
#include "services/worker/model/adapter/adapter.h"
#include "services/worker/model/adapter/adapter_files.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// An adapter that is in memory for as long as somebody holds this. Plans name it by `id`, which is
// never given twice.
struct AdapterLease {
  int32_t id = 0;
  std::shared_ptr<const Adapter> adapter;
};

// What adapters of AdapterPool::ReadInto may take. Those of Load count among the `most`, too.
struct AdapterLimits {
  size_t most = 0;   // in memory at a time
  int max_rank = 0;  // of each matrix
};

// The adapters of one model that are in memory. Thread-safe.
class AdapterPool : public std::enable_shared_from_this<AdapterPool> {
 public:
  // Owned by a shared_ptr.
  AdapterPool(ModelConfig config, std::vector<Shard> shards, const AdapterLimits& limits = {})
      : config_(std::move(config)), shards_(std::move(shards)), limits_(limits) {}

  // Reads the adapter of a folder; errors are those of AdapterFiles and Adapter. It leaves the pool
  // when the last copy of the result is gone.
  absl::StatusOr<std::shared_ptr<const AdapterLease>> Load(const std::string& dir);

  // The same within the limits, of a folder in `root` that others may write to. InvalidArgument
  // names a rank that is too large; ResourceExhausted where there is no room. One thread at a time.
  absl::StatusOr<std::shared_ptr<const AdapterLease>> ReadInto(const ConfinedFolder& root,
                                                               const std::string& dir);
  // Checks such a folder and returns the digest of the adapter, which is not in memory afterwards.
  absl::StatusOr<Digest128> ReadDigest(const ConfinedFolder& root, const std::string& dir) const;
  // True if ReadInto has room for one. An adapter counts until its memory is free: leases of it are
  // gone, and no step that runs reads it.
  bool HasRoom() const { return NumInMemory() < limits_.most; }
  size_t NumInMemory() const;

  // The bytes that adapters take at most beside `num_loaded` ones that Load read: their memory, and
  // the file that is being read.
  static int64_t MostBytes(const ModelConfig& config, std::span<const Shard> shards,
                           const AdapterLimits& limits, size_t num_loaded);

  // The adapter of a lease that is held. Internal where it is none's.
  absl::StatusOr<std::shared_ptr<const Adapter>> Find(int32_t id) const;

 private:
  absl::StatusOr<AdapterFiles> ReadFiles(const ConfinedFolder& root, const std::string& dir) const;
  std::shared_ptr<const AdapterLease> Add(std::shared_ptr<const Adapter> adapter);

  const ModelConfig config_;
  const std::vector<Shard> shards_;
  const AdapterLimits limits_;
  mutable absl::Mutex mutex_;
  int32_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<int32_t, std::shared_ptr<const Adapter>> adapters_ ABSL_GUARDED_BY(mutex_);
  // Of all whose memory may not be free yet.
  mutable std::vector<std::weak_ptr<const Adapter>> in_memory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::model
