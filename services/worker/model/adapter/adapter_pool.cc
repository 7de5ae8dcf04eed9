// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_pool.h"

#include "services/base/check.h"
#include "services/base/status_macros.h"

namespace continuo::model {

absl::StatusOr<std::shared_ptr<const AdapterLease>> AdapterPool::Load(const std::string& dir) {
  ASSIGN_OR_RETURN(const AdapterFiles files, AdapterFiles::Open(dir));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Adapter> adapter,
                   Adapter::Make(files.modules(), config_, shards_));
  absl::MutexLock lock(&mutex_);
  const int32_t id = next_id_++;
  adapters_.emplace(id, adapter);
  return std::shared_ptr<const AdapterLease>(
      new AdapterLease{id, adapter}, [pool = shared_from_this()](const AdapterLease* lease) {
        {
          absl::MutexLock lock(&pool->mutex_);
          pool->adapters_.erase(lease->id);
        }
        delete lease;
      });
}

std::shared_ptr<const Adapter> AdapterPool::Find(int32_t id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = adapters_.find(id);
  CONTINUO_CHECK(at != adapters_.end());
  return at->second;
}

}  // namespace continuo::model
