// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/json_file.h"

namespace continuo::model {
namespace {

constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxNameBytes = 1024;

// Bits of one element of a type; 0 if the type is unknown.
int BitsOf(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBits[] = {
      {"F64", 64},    {"F32", 32}, {"F16", 16}, {"BF16", 16}, {"F8_E4M3", 8},
      {"F8_E5M2", 8}, {"I64", 64}, {"I32", 32}, {"I16", 16},  {"I8", 8},
      {"U64", 64},    {"U32", 32}, {"U16", 16}, {"U8", 8},    {"BOOL", 8}};
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return 0;
}

// Returns false where `json` is not a whole number from 0 to 2^62.
bool ReadCount(const nlohmann::json& json, int64_t* out) {
  if (!json.is_number_unsigned()) return false;
  const uint64_t value = json.get<uint64_t>();
  if (value > (uint64_t{1} << 62)) return false;
  *out = static_cast<int64_t>(value);
  return true;
}

// Checks a header entry against the data section. Returns the problem, empty where there is none.
std::string ReadEntry(const nlohmann::json& entry, std::span<const uint8_t> data,
                      StoredTensor* out) {
  if (!entry.is_object()) return "is not an object";
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) return "has no dtype";
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) return "has no shape";
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return "has no data_offsets of two numbers";
  }

  out->dtype = dtype->get<std::string>();
  const int bits = BitsOf(out->dtype);
  if (bits == 0) return absl::StrCat("has the unknown dtype ", ShowJson(*dtype));
  if (shape->size() > kMaxDimensions) {
    return absl::StrCat("has ", shape->size(), " dimensions, more than ", kMaxDimensions);
  }
  int64_t bytes = bits / 8;
  for (const nlohmann::json& dimension : *shape) {
    int64_t size = 0;
    if (!ReadCount(dimension, &size) || __builtin_mul_overflow(bytes, size, &bytes)) {
      return absl::StrCat("has the impossible shape ", ShowJson(*shape));
    }
    out->shape.push_back(size);
  }
  int64_t begin = 0, end = 0;
  if (!ReadCount((*offsets)[0], &begin) || !ReadCount((*offsets)[1], &end) || begin > end) {
    return absl::StrCat("has the impossible data_offsets ", ShowJson(*offsets));
  }
  if (static_cast<uint64_t>(end) > data.size()) {
    return absl::StrCat("ends at byte ", end, " of the data, but the file has only ", data.size(),
                        "; is it truncated?");
  }
  if (end - begin != bytes) {
    return absl::StrCat("has ", end - begin, " bytes of data, but its shape ", ShowJson(*shape),
                        " and dtype need ", bytes);
  }
  out->bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  return "";
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::string_view name,
                                                           std::span<const uint8_t> file) {
  const std::string file_name(name);
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", parts...));
  };
  if (file.size() < 8) return error("has ", file.size(), " bytes, too few for a header");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | file[static_cast<size_t>(i)];
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return error("says its header has ", length, " bytes; at most ", kMaxSafetensorsHeader,
                 " are read");
  }
  if (length > file.size() - 8) {
    return error("says its header has ", length, " bytes, but only ", file.size() - 8, " follow");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  const std::span<const uint8_t> data = file.subspan(8 + length);

  ASSIGN_OR_RETURN(const nlohmann::json header,
                   ParseJson(absl::StrCat(file_name, ": header"), text));
  if (!header.is_object()) return error("header: not a JSON object");
  std::vector<StoredTensor> tensors;
  tensors.reserve(header.size());
  for (auto it = header.begin(); it != header.end(); ++it) {
    if (it.key() == "__metadata__") continue;
    if (it.key().size() > kMaxNameBytes) {
      return error("a tensor's name has ", it.key().size(), " bytes, more than ", kMaxNameBytes);
    }
    StoredTensor tensor;
    tensor.name = it.key();
    const std::string problem = ReadEntry(it.value(), data, &tensor);
    if (!problem.empty()) return error("tensor ", ShowJson(it.key()), " ", problem);
    tensors.push_back(std::move(tensor));
  }

  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) {
    if (!tensor.bytes.empty()) order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->bytes.data() < b->bytes.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i]->bytes.data() < order[i - 1]->bytes.data() + order[i - 1]->bytes.size()) {
      return error("tensors ", ShowJson(order[i - 1]->name), " and ", ShowJson(order[i]->name),
                   " overlap");
    }
  }
  return tensors;
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const auto error = [&path](int code) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(code));
    return code == ENOENT ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
  };
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return error(errno);
  struct stat info = {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    close(fd);
    return std::unique_ptr<MappedFile>(new MappedFile({}));
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int code = errno;
  close(fd);
  if (data == MAP_FAILED) return error(code);
  return std::unique_ptr<MappedFile>(
      new MappedFile(std::span<const uint8_t>(static_cast<const uint8_t*>(data), size)));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseSafetensorsIndex(
    std::string_view index_json) {
  constexpr char kName[] = "model.safetensors.index.json";
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(kName, index_json));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(kName, ": has no object weight_map"));
  }
  const nlohmann::json& map = index["weight_map"];
  absl::flat_hash_map<std::string, std::string> shard_of;
  for (auto it = map.begin(); it != map.end(); ++it) {
    const std::string shard = it.value().is_string() ? it.value().get<std::string>() : "";
    const bool plain = shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                       shard.size() <= 255 && shard[0] != '.' &&
                       absl::EndsWith(shard, ".safetensors");
    if (!plain) {
      return absl::InvalidArgumentError(
          absl::StrCat(kName, ": tensor ", ShowJson(it.key()), " is said to be in ",
                       ShowJson(it.value()), ", which is not the plain name of a .safetensors"));
    }
    shard_of.emplace(it.key(), shard);
  }
  return shard_of;
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir) {
  const std::filesystem::path folder(dir);
  Checkpoint checkpoint;
  const auto add = [&](const std::string& name) -> absl::StatusOr<std::vector<StoredTensor>> {
    ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open((folder / name).string()));
    checkpoint.files_.push_back(std::move(file));
    return ParseSafetensors(name, checkpoint.files_.back()->bytes());
  };

  absl::StatusOr<std::vector<StoredTensor>> single = add("model.safetensors");
  if (single.ok()) {
    for (StoredTensor& tensor : *single) checkpoint.tensors_.emplace(tensor.name, tensor);
    return checkpoint;
  }
  if (!absl::IsNotFound(single.status())) return single.status();

  absl::StatusOr<std::string> index_json =
      ReadSmallFile((folder / "model.safetensors.index.json").string(), kMaxSafetensorsHeader);
  if (absl::IsNotFound(index_json.status())) {
    return absl::NotFoundError(
        absl::StrCat(dir, ": has neither model.safetensors nor model.safetensors.index.json"));
  }
  RETURN_IF_ERROR(index_json.status());
  ASSIGN_OR_RETURN(const auto shard_of, ParseSafetensorsIndex(*index_json));
  std::vector<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  if (shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.safetensors.index.json: names ", shards.size(), " shards, more than ", kMaxShards));
  }
  for (const std::string& shard : shards) {
    ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, add(shard));
    for (StoredTensor& tensor : tensors) {
      const auto it = shard_of.find(tensor.name);
      if (it == shard_of.end() || it->second != shard) continue;  // the index decides
      checkpoint.tensors_.emplace(tensor.name, std::move(tensor));
    }
  }
  for (const auto& [name, shard] : shard_of) {
    if (!checkpoint.tensors_.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat("model.safetensors.index.json: tensor ",
                                                     ShowJson(name), " is not in ", shard));
    }
  }
  return checkpoint;
}

const StoredTensor* Checkpoint::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace continuo::model
