// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo {

// A folder out of which no path and no symbolic link leads, for paths that others choose. Links
// that stay below it are followed. Whoever may write in the folder may change it meanwhile: then a
// call fails, and opens nothing outside. Errors name paths relative to the folder, or as they were
// given. Immutable; thread-safe.
class ConfinedFolder {
 public:
  // The folder is the one that `path` leads to now. NotFound where there is none; InvalidArgument
  // where it is no folder.
  static absl::StatusOr<ConfinedFolder> Open(const std::string& path);

  // Absolute, without symbolic links.
  const std::string& path() const { return path_; }
  // Returns the absolute path, without symbolic links, of the file or folder that `path` leads to,
  // which is relative to this folder or absolute. PermissionDenied where that is outside; NotFound
  // where there is none.
  absl::StatusOr<std::string> Resolve(const std::string& path) const;
  // Returns the bytes of a regular file, which need not be one moment's where it is written
  // meanwhile. Errors as Resolve, and InvalidArgument where it is no file or has more than
  // `max_bytes`.
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) const;
  // Returns a text that differs once the file's contents were replaced or written. Errors as
  // ReadFile.
  absl::StatusOr<std::string> Stamp(const std::string& path) const;
  // Returns the names of the folders directly below, sorted, and of links to folders.
  // InvalidArgument where there are more than `most`.
  absl::StatusOr<std::vector<std::string>> ListFolders(size_t most) const;

 private:
  explicit ConfinedFolder(std::string path) : path_(std::move(path)) {}
  // The path as errors name it.
  std::string Shown(const std::string& path) const;
  std::string path_;
};

}  // namespace continuo
