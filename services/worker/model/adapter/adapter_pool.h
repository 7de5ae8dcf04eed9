// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/model/adapter/adapter.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// An adapter that is in memory for as long as somebody holds this. Plans name it by `id`, which is
// never given twice.
struct AdapterLease {
  int32_t id = 0;
  std::shared_ptr<const Adapter> adapter;
};

// The adapters of one model that are in memory. Thread-safe.
class AdapterPool : public std::enable_shared_from_this<AdapterPool> {
 public:
  // Owned by a shared_ptr.
  AdapterPool(ModelConfig config, std::vector<Shard> shards)
      : config_(std::move(config)), shards_(std::move(shards)) {}

  // Reads the adapter of a folder; errors are those of AdapterFiles and Adapter. It leaves the pool
  // when the last copy of the result is gone.
  absl::StatusOr<std::shared_ptr<const AdapterLease>> Load(const std::string& dir);

  // The adapter of a lease that is held.
  std::shared_ptr<const Adapter> Find(int32_t id) const;

 private:
  const ModelConfig config_;
  const std::vector<Shard> shards_;
  mutable absl::Mutex mutex_;
  int32_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<int32_t, std::shared_ptr<const Adapter>> adapters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::model
