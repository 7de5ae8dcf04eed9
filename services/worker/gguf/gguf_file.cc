// SPDX-License-Identifier: Apache-2.0
#include "services/worker/gguf/gguf_file.h"

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/status_macros.h"

namespace continuo::gguf {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFiles = 4096;
constexpr char kCount[] = "split.count", kNumber[] = "split.no";

template <typename T>
const T* As(const Value* value) {
  return value == nullptr ? nullptr : std::get_if<T>(value);
}

template <typename T>
std::optional<T> Copy(const Value* value) {
  const T* const found = As<T>(value);
  return found == nullptr ? std::nullopt : std::optional<T>(*found);
}

}  // namespace

bool IsGguf(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char magic[4] = {};
  std::ifstream in(path, std::ios::binary);
  return in.read(magic, sizeof(magic)) && std::string_view(magic, sizeof(magic)) == "GGUF";
}

absl::StatusOr<GgufFile> GgufFile::Parse(std::string_view file_name,
                                         std::span<const uint8_t> file) {
  ASSIGN_OR_RETURN(Contents contents, ParseGguf(file_name, file));
  GgufFile result;
  result.name_ = std::string(file_name);
  result.metadata_ = std::move(contents.metadata);
  for (size_t i = 0; i < result.metadata_.size(); ++i) result.keys_[result.metadata_[i].first] = i;
  RETURN_IF_ERROR(result.AddTensors(std::move(contents.tensors)));
  return result;
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(GgufFile result, Parse(fs::path(path).filename().string(), file->bytes()));
  result.files_.push_back(std::move(file));
  const int64_t count = result.Whole(kCount).value_or(1);
  if (result.Whole(kNumber).value_or(0) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is part ", *result.Whole(kNumber) + 1, " of ", count,
                     " of a model; give the first part, whose name ends in -00001-of-",
                     absl::StrFormat("%05d", count), ".gguf"));
  }
  if (count > 1) RETURN_IF_ERROR(result.OpenOthers(path, count));
  return result;
}

absl::Status GgufFile::OpenOthers(const std::string& path, int64_t count) {
  const std::string end = absl::StrFormat("-00001-of-%05d.gguf", count);
  if (count > kMaxFiles || !absl::EndsWith(path, end)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is the first of ", count, " parts, at most ", kMaxFiles,
                     "; its name must end in ", end, ", so that the others are found"));
  }
  const std::string stem = path.substr(0, path.size() - end.size());
  std::vector<std::string> missing;
  for (int64_t i = 2; i <= count; ++i) {
    const std::string part = stem + absl::StrFormat("-%05d-of-%05d.gguf", i, count);
    absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(part);
    if (absl::IsNotFound(file.status())) {
      missing.push_back(fs::path(part).filename().string());
      continue;
    }
    RETURN_IF_ERROR(file.status());
    const std::string name = fs::path(part).filename().string();
    ASSIGN_OR_RETURN(const GgufFile other, Parse(name, (*file)->bytes()));
    if (other.Whole(kCount) != count || other.Whole(kNumber) != i - 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": says that it is part ", other.Whole(kNumber).value_or(0) + 1, " of ",
          other.Whole(kCount).value_or(1), ", its name that it is ", i, " of ", count));
    }
    RETURN_IF_ERROR(AddTensors(other.tensors()));
    files_.push_back(*std::move(file));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      path, ": of its ", count, " parts ", missing.size(), missing.size() == 1 ? " is" : " are",
      " missing: ", missing[0], missing.size() == 1 ? "" : " to " + missing.back()));
}

absl::Status GgufFile::AddTensors(std::vector<Tensor> tensors) {
  for (Tensor& tensor : tensors) {
    if (!tensor_names_.emplace(tensor.name, tensors_.size()).second) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": tensor ", std::string(tensor.name),
                                                     " is in two parts of the model"));
    }
    tensors_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

const Value* GgufFile::Find(std::string_view key) const {
  const auto it = keys_.find(key);
  return it == keys_.end() ? nullptr : &metadata_[it->second].second;
}

std::optional<std::string_view> GgufFile::Text(std::string_view key) const {
  return Copy<std::string_view>(Find(key));
}

std::optional<int64_t> GgufFile::Whole(std::string_view key) const {
  return Copy<int64_t>(Find(key));
}

std::optional<bool> GgufFile::Flag(std::string_view key) const { return Copy<bool>(Find(key)); }

const std::vector<std::string_view>* GgufFile::Texts(std::string_view key) const {
  return As<std::vector<std::string_view>>(Find(key));
}

const std::vector<double>* GgufFile::Numbers(std::string_view key) const {
  return As<std::vector<double>>(Find(key));
}

const Tensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_names_.find(name);
  return it == tensor_names_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace continuo::gguf
