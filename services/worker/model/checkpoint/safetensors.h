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
#include "services/base/mapped_file.h"
#include "services/worker/gguf/gguf_file.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/quantised/matrix.h"
#include "services/worker/quantised/quantisation_config.h"

namespace continuo::model {

// A tensor of a safetensors or GGUF file: a view of its bytes, row-major, little-endian, with any
// alignment. Or a matrix that several tensors of a quantised checkpoint give.
struct StoredTensor {
  std::string name;   // as a safetensors file names it
  std::string dtype;  // as the file names it: "BF16", "F32", "I64", "Q4_K" …; or the format
  std::vector<int64_t> shape;  // at most 8 dimensions
  std::span<const uint8_t> bytes;
  // Rows of a head whose rotated pairs are side by side, 2i and 2i + 1, where the model has them at
  // i and at i + half of the rows; 0: rows are in the model's order.
  int64_t interleaved_head = 0;
  gguf::TiledHeads tiled;
  int64_t turned_head = 0;  // see gguf::NamedTensor
  bool is_rate = false;     // see gguf::NamedTensor
  // For a view of some rows: row r is row row_begin + r * row_step of `bytes`.
  int64_t row_begin = 0, row_step = 1;
  // 0: a row's elements follow one another. Otherwise they are so many elements apart, and the rows
  // of `bytes` are its columns: elements (0, c), (1, c) … follow one another.
  int64_t column_stride = 0;
  // Null where the elements are those of `bytes`.
  std::shared_ptr<const quantised::Matrix> quantised = nullptr;

  // The bytes of the file that the values are made of.
  int64_t num_bytes() const;
  bool is_view() const { return row_begin != 0 || row_step != 1 || column_stride != 0; }
};

inline constexpr int64_t kMaxSafetensorsHeader = 32 << 20;  // bytes

// Parses a whole file. The header (8 bytes of length, then JSON) may say anything:
// InvalidArgument, beginning with `file_name`, where lengths, offsets, shapes or types do not fit
// the file or each other, or tensors overlap; where it is a file of another kind, the message says
// which. The views point into `file`.
absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::string_view file_name,
                                                           std::span<const uint8_t> file);

// Reads the shard of each tensor from model.safetensors.index.json. InvalidArgument where a shard
// is no plain file name: an index does not lead out of its folder.
absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseSafetensorsIndex(
    std::string_view index_json);

// The tensors of a model's folder: those of model.safetensors, or else of the shards that
// model.safetensors.index.json names, all of them; or those of a GGUF file. They have the names
// that ListWeights gives, also where the files have others that plainly mean the same
// (tensor_names.h). Where config.json tells of a quantisation, the tensors of each quantised module
// are one matrix (services/worker/quantised). Immutable once open.
class Checkpoint {
 public:
  // `path` is a folder or a GGUF file. NotFound says which files are missing and what the folder
  // has instead.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  // Returns null where there is no tensor of that name.
  const StoredTensor* Find(const std::string& name) const;
  // By name; a StoredTensor has the name that its file gives it.
  const absl::flat_hash_map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // For the log: what the files say and the model does not use.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status OpenGguf(const std::string& path);
  absl::Status OpenShards(const std::string& dir, std::string_view index_json);
  absl::Status Add(const std::string& dir, const std::string& file);
  absl::Status JoinQuantised(const quantised::QuantisationConfig& config);
  absl::Status UseCanonicalNames();

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::unique_ptr<gguf::GgufFile> gguf_;
  absl::flat_hash_map<std::string, StoredTensor> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace continuo::model
