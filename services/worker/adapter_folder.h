// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/base/confined_folder.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/server/runtime/adapter_loader.h"

namespace continuo::worker {

// The folder of --lora_root: adapters of a model that are read while it serves.
class AdapterFolder : public server::AdapterLoader {
 public:
  // What `base` points to outlives the object.
  AdapterFolder(ConfinedFolder root, std::shared_ptr<model::AdapterPool> pool,
                server::ServedModel base)
      : root_(std::move(root)), pool_(std::move(pool)), base_(std::move(base)) {}

  // A folder is one of an adapter where it has an adapter_config.json.
  absl::StatusOr<std::vector<server::FoundAdapter>> Scan(size_t most) override;
  absl::StatusOr<server::ServedModel> Describe(const std::string& name,
                                               const std::string& path) override;
  absl::StatusOr<server::ServedModel> Load(const std::string& name,
                                           const std::string& path) override;
  bool HasRoom() override { return pool_->HasRoom(); }

 private:
  const ConfinedFolder root_;
  const std::shared_ptr<model::AdapterPool> pool_;
  const server::ServedModel base_;
};

}  // namespace continuo::worker
