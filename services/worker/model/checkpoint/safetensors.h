// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace continuo::model {

// A tensor of a safetensors file: a view of its bytes, row-major, little-endian, with any
// alignment.
struct StoredTensor {
  std::string name;            // as the file names it
  std::string dtype;           // as the file names it: "BF16", "F32", "I64" …
  std::vector<int64_t> shape;  // at most 8 dimensions; product × element size = bytes.size()
  std::span<const uint8_t> bytes;
};

inline constexpr int64_t kMaxSafetensorsHeader = 32 << 20;  // bytes

// Parses a whole file. The header (8 bytes of length, then JSON) may say anything:
// InvalidArgument, beginning with `file_name`, where lengths, offsets, shapes or types do not fit
// the file or each other, or tensors overlap; where it is a file of another kind, the message says
// which. The views point into `file`.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::string_view file_name,
                                                           std::span<const uint8_t> file);

// A read-only mapping of a file. A truncation of the file meanwhile ends the process (SIGBUS), so
// views are for loading only.
class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  std::span<const uint8_t> bytes_;
};

// Reads the shard of each tensor from model.safetensors.index.json. InvalidArgument where a shard
// is no plain file name: an index does not lead out of its folder.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseSafetensorsIndex(
    std::string_view index_json);

// The tensors of a model's folder: those of model.safetensors, or else of the shards that
// model.safetensors.index.json names, all of them. They have the names that ListWeights gives, also
// where the files have others that plainly mean the same (tensor_names.h). Immutable once open.
class Checkpoint {
 public:
  // NotFound says which files are missing and what the folder has instead.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir);

  // Returns null where there is no tensor of that name.
  const StoredTensor* Find(const std::string& name) const;
  // By name; a StoredTensor has the name that its file gives it.
  const absl::flat_hash_map<std::string, StoredTensor>& tensors() const { return tensors_; }

 private:
  absl::Status OpenShards(const std::string& dir, std::string_view index_json);
  absl::Status Add(const std::string& dir, const std::string& file);
  absl::Status UseCanonicalNames();

  std::vector<std::unique_ptr<MappedFile>> files_;
  absl::flat_hash_map<std::string, StoredTensor> tensors_;
};

}  // namespace continuo::model
