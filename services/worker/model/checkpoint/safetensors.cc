// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/foreign_file.h"
#include "services/base/status_macros.h"
#include "services/base/utf8.h"
#include "services/worker/gguf/gguf_names.h"
#include "services/worker/model/checkpoint/stacked_experts.h"
#include "services/worker/model/checkpoint/tensor_names.h"
#include "services/worker/model/description/json_file.h"
#include "services/worker/quantised/assemble.h"

namespace continuo::model {
namespace {

constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxNameBytes = 1024;
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr int64_t kMaxQuantisedConfigBytes = 4 << 20;

// Bits of one element of a type; 0 if the type is unknown.
int BitsOf(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int> kBits[] = {
      {"F64", 64},    {"F32", 32}, {"F16", 16}, {"BF16", 16}, {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"I64", 64}, {"I32", 32}, {"I16", 16},  {"I8", 8},      {"U64", 64},
      {"U32", 32},    {"U16", 16}, {"U8", 8},   {"BOOL", 8}};
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

// True for a beginning that is all printable, as an error message in the file's place is. The
// length at the beginning of a safetensors file has bytes of zero.
bool IsText(std::string_view head) {
  const auto is_text = [](char c) { return (c >= ' ' && c < 0x7f) || c == '\n' || c == '\r'; };
  return head.size() >= 8 && std::all_of(head.begin(), head.begin() + 8, is_text);
}

std::string FirstLine(std::string_view text) {
  return std::string(text.substr(0, text.find_first_of("\r\n")));
}

// Tells which other files of weights a folder without safetensors has, as "; it has ...".
std::string OtherWeights(const std::filesystem::path& dir) {
  struct Kind {
    std::string_view end, what;
  };
  static constexpr Kind kKinds[] = {
      {"adapter_model.safetensors", "a LoRA adapter: merge it into its model"},
      {".safetensors", "not one of the usual names, and no index leads to it"},
      {".bin", "a PyTorch pickle: convert it to safetensors"},
      {".pt", "a PyTorch pickle: convert it to safetensors"},
      {".pth", "a PyTorch pickle: convert it to safetensors"},
      {".ckpt", "a pickle: convert it to safetensors"},
      {".gguf", "GGUF: give the path of that file as the model"},
      {".h5", "TensorFlow's: convert it to safetensors"},
      {".msgpack", "Flax's: convert it to safetensors"},
      {".onnx", "ONNX, which is not read"}};
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const Kind& kind : kKinds) {
    for (const std::string& name : names) {
      if (name == "training_args.bin" || !std::string_view(name).ends_with(kind.end)) continue;
      return absl::StrCat("; it has ", ToValidUtf8(name), ", which is ", std::string(kind.what));
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensors(std::string_view name,
                                                           std::span<const uint8_t> file) {
  const std::string file_name(name);
  const auto error = [&](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", parts...));
  };
  const std::string_view head(reinterpret_cast<const char*>(file.data()),
                              std::min(file.size(), kForeignHeadBytes));
  if (const std::string foreign = ForeignFile(head); !foreign.empty()) return error(foreign);
  if (IsText(head)) return error("is a text that begins with ", ShowJson(FirstLine(head)));
  if (file.size() < 8) return error("has ", file.size(), " bytes, too few for a header");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = (length << 8) | file[static_cast<size_t>(i)];
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return error("says its header has ", length, " bytes; at most ", kMaxSafetensorsHeader,
                 " are read");
  }
  if (length > file.size() - 8) {
    return error("says its header has ", length, " bytes, but only ", file.size() - 8,
                 " follow; is it truncated?");
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

absl::StatusOr<absl::flat_hash_map<std::string, std::string>> ParseSafetensorsIndex(
    std::string_view index_json) {
  ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(kIndexName, index_json));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(kIndexName, ": has no object weight_map"));
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
          absl::StrCat(kIndexName, ": tensor ", ShowJson(it.key()), " is said to be in ",
                       ShowJson(it.value()), ", which is not the plain name of a .safetensors"));
    }
    shard_of.emplace(it.key(), shard);
  }
  return shard_of;
}

namespace {

// The quantisation that the folder's config.json tells of; none where it has no such file.
absl::StatusOr<quantised::QuantisationConfig> ReadQuantisation(const std::filesystem::path& dir) {
  const absl::StatusOr<std::string> text =
      ReadSmallFile((dir / "config.json").string(), kMaxQuantisedConfigBytes);
  if (absl::IsNotFound(text.status())) return quantised::QuantisationConfig{};
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const nlohmann::json config, ParseJson("config.json", *text));
  return quantised::ReadQuantisationConfig(config);
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir) {
  const std::filesystem::path folder(dir);
  Checkpoint checkpoint;
  if (gguf::IsGguf(dir)) {
    RETURN_IF_ERROR(checkpoint.OpenGguf(dir));
    return checkpoint;
  }
  const absl::Status single = checkpoint.Add(dir, "model.safetensors");
  if (absl::IsNotFound(single)) {
    const absl::StatusOr<std::string> index_json =
        ReadSmallFile((folder / kIndexName).string(), kMaxSafetensorsHeader);
    if (absl::IsNotFound(index_json.status())) {
      return absl::NotFoundError(absl::StrCat(dir, ": has neither model.safetensors nor ",
                                              kIndexName, OtherWeights(folder)));
    }
    RETURN_IF_ERROR(index_json.status());
    RETURN_IF_ERROR(checkpoint.OpenShards(dir, *index_json));
  } else {
    RETURN_IF_ERROR(single);
  }
  ASSIGN_OR_RETURN(const quantised::QuantisationConfig quantisation, ReadQuantisation(folder));
  RETURN_IF_ERROR(checkpoint.JoinQuantised(quantisation));
  RETURN_IF_ERROR(checkpoint.UseCanonicalNames());
  RETURN_IF_ERROR(UnstackExperts(checkpoint.tensors_));
  return checkpoint;
}

int64_t StoredTensor::num_bytes() const {
  if (quantised == nullptr) return static_cast<int64_t>(bytes.size());
  size_t sum = 0;
  for (const quantised::StoredPart& part : quantised->parts) sum += part.bytes.size();
  return static_cast<int64_t>(sum);
}

absl::Status Checkpoint::JoinQuantised(const quantised::QuantisationConfig& config) {
  if (config.method == quantised::Method::kNone) return absl::OkStatus();
  absl::flat_hash_map<std::string, quantised::StoredPart> parts;
  for (const auto& [name, tensor] : tensors_) {
    parts.emplace(name,
                  quantised::StoredPart{tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  ASSIGN_OR_RETURN(quantised::Assembly assembly, quantised::Assemble(config, parts));
  for (const std::string& name : assembly.read) tensors_.erase(name);
  for (const std::string& name : assembly.unused) tensors_.erase(name);
  for (const std::shared_ptr<const quantised::Matrix>& matrix : assembly.matrices) {
    StoredTensor tensor = {.name = matrix->name,
                           .dtype = matrix->format,
                           .shape = {matrix->rows, matrix->columns},
                           .bytes = matrix->parts.front().bytes,
                           .quantised = matrix};
    if (!tensors_.emplace(matrix->name, std::move(tensor)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights: two tensors would be ", ShowJson(matrix->name)));
    }
  }
  warnings_ = config.notes;
  if (!assembly.unused.empty()) {
    warnings_.push_back(
        absl::StrCat("weights: scales of activations or of the KV cache are not used, such as ",
                     ShowJson(assembly.unused.front()), ", ", assembly.unused.size(), " in all"));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::OpenGguf(const std::string& path) {
  ASSIGN_OR_RETURN(gguf::GgufFile file, gguf::GgufFile::Open(path));
  gguf_ = std::make_unique<gguf::GgufFile>(std::move(file));
  ASSIGN_OR_RETURN(const std::vector<gguf::NamedTensor> tensors, gguf::NamedTensors(*gguf_));
  for (const gguf::NamedTensor& tensor : tensors) {
    const bool is_new =
        tensors_
            .emplace(tensor.name, StoredTensor{.name = tensor.name,
                                               .dtype = std::string(tensor.type->name),
                                               .shape = tensor.shape,
                                               .bytes = tensor.bytes,
                                               .interleaved_head = tensor.interleaved_head,
                                               .tiled = tensor.tiled,
                                               .turned_head = tensor.turned_head,
                                               .is_rate = tensor.is_rate})
            .second;
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": two tensors would be ", ShowJson(tensor.name)));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::OpenShards(const std::string& dir, std::string_view index_json) {
  ASSIGN_OR_RETURN(const auto shard_of, ParseSafetensorsIndex(index_json));
  std::vector<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  if (shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat(kIndexName, ": names ", shards.size(), " shards, more than ", kMaxShards));
  }
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    const absl::Status added = Add(dir, shard);
    if (absl::IsNotFound(added)) {
      missing.push_back(shard);
    } else {
      RETURN_IF_ERROR(added);
    }
  }
  if (!missing.empty()) {
    return absl::NotFoundError(
        absl::StrCat(kIndexName, ": names ", shards.size(), " shards, of which ", missing.size(),
                     missing.size() == 1 ? " is" : " are", " missing in ", dir, ": ", missing[0],
                     missing.size() == 1 ? "" : absl::StrCat(" to ", missing.back())));
  }
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_of) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!tensors_.contains(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kIndexName, ": tensor ", ShowJson(name), " is not in ", shard_of.at(name)));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Add(const std::string& dir, const std::string& file_name) {
  ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file,
                   MappedFile::Open((std::filesystem::path(dir) / file_name).string()));
  ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors, ParseSafetensors(file_name, file->bytes()));
  files_.push_back(std::move(file));
  for (StoredTensor& tensor : tensors) {
    const auto [it, is_new] = tensors_.emplace(tensor.name, tensor);
    const StoredTensor& other = it->second;
    const bool is_same = tensor.dtype == other.dtype && tensor.shape == other.shape &&
                         std::ranges::equal(tensor.bytes, other.bytes);
    if (!is_new && !is_same) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_name, ": tensor ", ShowJson(tensor.name),
                       " is in an earlier shard, too, with other contents"));
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::UseCanonicalNames() {
  const NamePrefix* prefix = nullptr;
  for (const auto& [name, tensor] : tensors_) {
    const NamePrefix* const found = FindNamePrefix(name);
    if (found == nullptr) continue;
    // Two embeddings: one of them is no part of the model, and unread tensors are told.
    if (prefix != nullptr) return absl::OkStatus();
    prefix = found;
  }
  if (prefix == nullptr || prefix->body == "model.") return absl::OkStatus();
  absl::flat_hash_map<std::string, StoredTensor> renamed;
  for (auto& [name, tensor] : tensors_) {
    const auto [it, is_new] = renamed.emplace(CanonicalName(*prefix, name), std::move(tensor));
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("weights: tensors ", ShowJson(name), " and ",
                                                     ShowJson(it->second.name),
                                                     " would be the same one"));
    }
  }
  tensors_ = std::move(renamed);
  return absl::OkStatus();
}

const StoredTensor* Checkpoint::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace continuo::model
