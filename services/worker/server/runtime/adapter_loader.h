// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// A folder of an adapter's files.
struct FoundAdapter {
  std::string name;   // of the folder
  std::string path;   // as AdapterLoader takes it
  std::string stamp;  // another one once the files have changed
};

// Reads adapters for ServedAdapters, from a folder that others may write to. One thread at a time;
// methods may take long. Names and paths may be anything. Errors tell what is wrong with a path, a
// file or a field.
class AdapterLoader {
 public:
  virtual ~AdapterLoader() = default;

  // Returns the adapters that lie in the folder, sorted by name. InvalidArgument where it has more
  // than `most` folders.
  virtual absl::StatusOr<std::vector<FoundAdapter>> Scan(size_t most) = 0;
  // Checks an adapter and describes it as a model that cannot run: `adapter` is kNoAdapter and
  // `adapter_lease` null.
  virtual absl::StatusOr<ServedModel> Describe(const std::string& name,
                                               const std::string& path) = 0;
  // Reads it into memory, where the lease keeps it. ResourceExhausted where there is no room.
  virtual absl::StatusOr<ServedModel> Load(const std::string& name, const std::string& path) = 0;
  // True if there is room for one more.
  virtual bool HasRoom() = 0;
};

}  // namespace continuo::server
