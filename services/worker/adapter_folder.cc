// SPDX-License-Identifier: Apache-2.0
#include "services/worker/adapter_folder.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/serving.h"

namespace continuo::worker {

absl::StatusOr<std::vector<server::FoundAdapter>> AdapterFolder::Scan(size_t most) {
  const absl::StatusOr<std::vector<std::string>> names = root_.ListFolders(most);
  if (!names.ok()) {
    return absl::Status(names.status().code(),
                        absl::StrCat(root_.path(), ": ", names.status().message()));
  }
  std::vector<server::FoundAdapter> found;
  for (const std::string& name : *names) {
    const absl::StatusOr<std::string> config =
        root_.Stamp(absl::StrCat(name, "/adapter_config.json"));
    // Others may lie in the folder, too.
    if (absl::IsNotFound(config.status())) continue;
    // Of one with a file that is missing or cannot be read, this tells that, and Describe why.
    const absl::StatusOr<std::string> stamp = model::AdapterFiles::Stamp(root_, name);
    found.push_back({name, name, stamp.ok() ? *stamp : stamp.status().ToString()});
  }
  return found;
}

absl::StatusOr<server::ServedModel> AdapterFolder::Describe(const std::string& name,
                                                            const std::string& path) {
  ASSIGN_OR_RETURN(const model::Digest128 digest, pool_->ReadDigest(root_, path));
  return DescribeAdapter(base_, name, digest);
}

absl::StatusOr<server::ServedModel> AdapterFolder::Load(const std::string& name,
                                                        const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<const model::AdapterLease> lease, pool_->ReadInto(root_, path));
  return DescribeAdapter(base_, {name, std::move(lease)});
}

}  // namespace continuo::worker
