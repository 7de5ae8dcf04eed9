// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/base/mapped_file.h"
#include "services/worker/gguf/gguf_reader.h"

namespace continuo::gguf {

// True for a regular file that begins as GGUF does.
bool IsGguf(const std::string& path);

// A GGUF model: one file, or all files of one that was split. Immutable; its views live as long as
// it does.
class GgufFile {
 public:
  // `path` is the only file, or the first of several (NAME-00001-of-00003.gguf), whose others lie
  // beside it. NotFound names the files that are missing; InvalidArgument as ParseGguf, and where
  // the files are not parts of one model.
  static absl::StatusOr<GgufFile> Open(const std::string& path);
  // Parses the bytes of a single file, which the result's views point into.
  static absl::StatusOr<GgufFile> Parse(std::string_view file_name, std::span<const uint8_t> file);

  const std::string& name() const { return name_; }  // of the first file, without folders
  // Null where there is no such key.
  const Value* Find(std::string_view key) const;
  // Empty where the key is absent or has another type.
  std::optional<std::string_view> Text(std::string_view key) const;
  std::optional<int64_t> Whole(std::string_view key) const;
  std::optional<bool> Flag(std::string_view key) const;
  const std::vector<std::string_view>* Texts(std::string_view key) const;
  const std::vector<double>* Numbers(std::string_view key) const;
  // The first file's keys, in its order.
  const std::vector<std::pair<std::string_view, Value>>& metadata() const { return metadata_; }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* FindTensor(std::string_view name) const;

 private:
  absl::Status AddTensors(std::vector<Tensor> tensors);
  absl::Status OpenOthers(const std::string& path, int64_t count);

  std::string name_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<std::pair<std::string_view, Value>> metadata_;
  absl::flat_hash_map<std::string_view, size_t> keys_;
  std::vector<Tensor> tensors_;
  absl::flat_hash_map<std::string_view, size_t> tensor_names_;
};

}  // namespace continuo::gguf
