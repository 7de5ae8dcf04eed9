// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter_pool.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

// Of a safetensors file, beside its values: a module's names, shapes and places take about 500
// bytes.
constexpr int64_t kMostHeaderBytes = 8 << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const AdapterLease>> AdapterPool::Load(const std::string& dir) {
  ASSIGN_OR_RETURN(const AdapterFiles files, AdapterFiles::Open(dir));
  ASSIGN_OR_RETURN(std::shared_ptr<const Adapter> adapter,
                   Adapter::Make(files.modules(), config_, shards_));
  return Add(std::move(adapter));
}

absl::StatusOr<AdapterFiles> AdapterPool::ReadFiles(const ConfinedFolder& root,
                                                    const std::string& dir) const {
  const int64_t most_bytes = Adapter::MostFileBytes(config_, limits_.max_rank) + kMostHeaderBytes;
  ASSIGN_OR_RETURN(AdapterFiles files, AdapterFiles::Read(root, dir, most_bytes));
  for (const AdapterModule& module : files.modules()) {
    if (module.rank <= limits_.max_rank) continue;
    return absl::InvalidArgumentError(absl::StrCat("module ", ShowJson(nlohmann::json(module.name)),
                                                   " has the rank ", module.rank,
                                                   "; --max_lora_rank is ", limits_.max_rank));
  }
  return files;
}

absl::StatusOr<std::shared_ptr<const AdapterLease>> AdapterPool::ReadInto(
    const ConfinedFolder& root, const std::string& dir) {
  ASSIGN_OR_RETURN(const AdapterFiles files, ReadFiles(root, dir));
  if (!HasRoom()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(limits_.most, " adapters are in memory; --max_lora_adapters allows no more"));
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const Adapter> adapter,
                   Adapter::Make(files.modules(), config_, shards_));
  return Add(std::move(adapter));
}

absl::StatusOr<Digest128> AdapterPool::ReadDigest(const ConfinedFolder& root,
                                                  const std::string& dir) const {
  ASSIGN_OR_RETURN(const AdapterFiles files, ReadFiles(root, dir));
  return Adapter::Digest(files.modules(), config_);
}

std::shared_ptr<const AdapterLease> AdapterPool::Add(std::shared_ptr<const Adapter> adapter) {
  absl::MutexLock lock(&mutex_);
  const int32_t id = next_id_++;
  adapters_.emplace(id, adapter);
  in_memory_.push_back(adapter);
  return std::shared_ptr<const AdapterLease>(
      new AdapterLease{id, std::move(adapter)},
      [pool = shared_from_this()](const AdapterLease* lease) {
        {
          absl::MutexLock lock(&pool->mutex_);
          pool->adapters_.erase(lease->id);
        }
        delete lease;
      });
}

size_t AdapterPool::NumInMemory() const {
  absl::MutexLock lock(&mutex_);
  std::erase_if(in_memory_, [](const auto& adapter) { return adapter.expired(); });
  return in_memory_.size();
}

int64_t AdapterPool::MostBytes(const ModelConfig& config, std::span<const Shard> shards,
                               const AdapterLimits& limits, size_t num_loaded) {
  const size_t more = limits.most - std::min(limits.most, num_loaded);
  if (more == 0) return 0;
  return static_cast<int64_t>(more) * Adapter::MostBytes(config, shards, limits.max_rank) +
         Adapter::MostFileBytes(config, limits.max_rank) + kMostHeaderBytes;
}

absl::StatusOr<std::shared_ptr<const Adapter>> AdapterPool::Find(int32_t id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = adapters_.find(id);
  if (at == adapters_.end()) {
    return absl::InternalError(absl::StrCat("a step names adapter ", id, ", which nobody holds"));
  }
  return at->second;
}

}  // namespace continuo::model
