// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/math/arithmetic.h"
#include "kernels/math/exact_math.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/tensor_names.h"
#include "services/worker/model/checkpoint/weight_schemes.h"
#include "services/worker/model/checkpoint/weight_source.h"
#include "services/worker/model/description/json_file.h"
#include "services/worker/model/description/known_fields.h"

namespace continuo::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes, of the beginning of each tensor
constexpr char kHead[] = "lm_head.weight";
constexpr int64_t kStagingBytes = 4 << 20;  // converted rows that are copied in at a time

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

using Part = WeightPart;

// What the places of a rank's tensors follow from.
struct PlaceRules {
  const ModelConfig& config;
  const Shard& shard;
  const Checkpoint& checkpoint;
  kernels::WeightType type;
  const kernels::Device& device;
};

// The type of one matrix in a scheme.
kernels::WeightType TypeOf(const WeightSpec& spec, const WeightScheme& scheme) {
  if (spec.is_router) return scheme.router;
  if (spec.cut == Cut::kVocabRows || spec.is_table) return scheme.vocabulary;
  const bool is_expert = spec.cut == Cut::kExpertRows || spec.cut == Cut::kExpertColumns;
  if (is_expert) return scheme.experts;
  return spec.is_sensitive ? scheme.sensitive : scheme.dense;
}

// A tensor's format and size on the device, before it has memory.
struct Placed {
  kernels::Weight weight;  // of a vector, its data alone
  std::vector<int64_t> splits;
  int64_t bytes = 0;
  // Set where the integers of the file are kept.
  std::optional<StoredGroups> kept = std::nullopt;
};

// The type of a matrix whose integers are not kept, where those of others are.
kernels::WeightType WidenedType(const StoredTensor& stored) {
  return stored.dtype == "BF16" ? kernels::WeightType::kBF16 : kernels::WeightType::kF32;
}

Placed Place(const WeightSpec& spec, const Part& part, const PlaceRules& rules) {
  Placed placed;
  kernels::Tensor& data = placed.weight.data;
  data.shape = {part.rows.size(), part.columns.size(), 1};
  if (spec.matrix == nullptr) {
    placed.bytes = static_cast<int64_t>(data.bytes());
    return placed;
  }
  const kernels::MatMulOps& matmul = rules.device.ops().matmul;
  kernels::WeightType type = TypeOf(spec, SchemeOf(rules.type));
  placed.splits = SplitsOf(spec, rules.shard, part);
  if (type == kernels::WeightType::kStored) {
    const StoredTensor& stored = *rules.checkpoint.Find(spec.name);
    // CheckStored has passed.
    placed.kept = FindStoredGroups(spec, stored, rules.config).value_or(std::nullopt);
    type = WidenedType(stored);
  }
  if (placed.kept.has_value()) {
    placed.weight.format = placed.kept->format;
    placed.weight.groups = placed.kept->groups;
  } else {
    // Encoders compute prompts alone.
    placed.weight.format =
        rules.config.encoder.is_encoder ? matmul.PackedFormatOf(type) : matmul.FormatOf(type);
  }
  data.dtype = type == kernels::WeightType::kF32   ? kernels::DType::kF32
               : type == kernels::WeightType::kF16 ? kernels::DType::kF16
                                                   : kernels::DType::kBF16;
  if (placed.weight.format != kernels::WeightFormat::kDense) data.dtype = kernels::DType::kI8;
  placed.bytes = static_cast<int64_t>(matmul.WeightBytes(placed.weight, placed.splits));
  return placed;
}

// Tensors that lie in memory as one: the rows of specs [begin, end), one after the other.
struct Joint {
  size_t begin, end;
  std::vector<Part> parts;  // of each spec
  Placed placed;
};

std::vector<Joint> JointsOf(const std::vector<WeightSpec>& specs, const PlaceRules& rules) {
  const ModelConfig& config = rules.config;
  const Shard& shard = rules.shard;
  const bool joins = JoinsHeads(config, shard, rules.device);
  std::vector<Joint> joints;
  for (size_t i = 0; i < specs.size();) {
    const WeightSpec& first = specs[i];
    Joint joint = {.begin = i, .end = i};
    Part all = PartOf(first, shard, config);
    all.rows = {0, 0};
    const auto is_next = [&](const WeightSpec& spec) {
      if (first.stacked_vector != nullptr) return spec.stacked_vector == first.stacked_vector;
      return joins && spec.joined_matrix == first.joined_matrix &&
             spec.joined_vector == first.joined_vector &&
             (spec.joined_matrix != nullptr || spec.joined_vector != nullptr);
    };
    do {
      joint.parts.push_back(PartOf(specs[joint.end], shard, config));
      all.rows.end += joint.parts.back().rows.size();
    } while (++joint.end < specs.size() && is_next(specs[joint.end]));
    joint.placed = Place(first, all, rules);
    i = joint.end;
    joints.push_back(std::move(joint));
  }
  return joints;
}

// Converts the source's rows to `dtype`, a multiple of kPackedRows at a time, and calls
// take(first row, bytes, number of rows).
template <typename Take>
absl::Status ForRows(const WeightSource& source, const kernels::Tensor& shape, kernels::DType dtype,
                     kernels::Device& device, std::vector<uint8_t>& staging, const Take& take) {
  const int64_t row_bytes = shape.cols() * static_cast<int64_t>(kernels::SizeOf(dtype));
  const int64_t chunk =
      std::max<int64_t>(1, kStagingBytes / row_bytes / kernels::kPackedRows) * kernels::kPackedRows;
  for (int64_t row = 0; row < shape.rows(); row += chunk) {
    const int64_t n = std::min(chunk, shape.rows() - row);
    staging.resize(static_cast<size_t>(n * row_bytes));
    RETURN_IF_ERROR(source.Read(row, n, dtype, staging.data(), device));
    take(row, staging.data(), n);
    RETURN_IF_ERROR(device.Synchronize());  // staging is filled again
  }
  return absl::OkStatus();
}

// Fills rows of `placed`, of the shape of `data`, with the integers of the file.
void FillGroups(const Placed& placed, int64_t first_row, const WeightSource& source,
                const kernels::Tensor& data, kernels::Device& device) {
  const int64_t chunk = std::max<int64_t>(1, kStagingBytes / data.cols() / kernels::kPackedRows) *
                        kernels::kPackedRows;
  GroupRows rows;
  for (int64_t row = 0; row < data.rows(); row += chunk) {
    const int64_t n = std::min(chunk, data.rows() - row);
    source.ReadGroups(row, n, *placed.kept, rows, device);
    device.ops().matmul.PackGroups(placed.weight, placed.splits, first_row + row, rows.view(), n);
  }
}

// Fills rows of `placed`, whose memory is there, from first_row on with the rank's part of a stored
// tensor.
absl::Status Fill(const Placed& placed, int64_t first_row, const StoredTensor& stored,
                  const WeightSpec& spec, const Part& part, kernels::Device& device,
                  std::vector<uint8_t>& staging) {
  kernels::Tensor data = placed.weight.data;
  data.shape[0] = part.rows.size();
  if (data.size() == 0) return absl::OkStatus();
  const WeightSource source(stored, spec, part);
  if (placed.kept.has_value()) {
    FillGroups(placed, first_row, source, data, device);
    return absl::OkStatus();
  }
  if (placed.weight.format != kernels::WeightFormat::kDense) {
    return ForRows(source, data, kernels::DType::kF32, device, staging,
                   [&](int64_t row, const uint8_t* rows, int64_t n) {
                     device.ops().matmul.PackRows(placed.weight, placed.splits, first_row + row,
                                                  reinterpret_cast<const float*>(rows), n);
                   });
  }
  data.data = static_cast<uint8_t*>(data.data) +
              first_row * data.cols() * static_cast<int64_t>(kernels::SizeOf(data.dtype));
  const bool is_log_rate = spec.is_log_rate && !stored.is_rate;
  if (source.HasBytesOf(data.dtype) && !spec.less_one && !is_log_rate && spec.scale == 1) {
    device.CopyIn(data, source.Row(0));
    return absl::OkStatus();
  }
  return ForRows(source, data, data.dtype, device, staging,
                 [&](int64_t row, uint8_t* rows, int64_t n) {
                   float* const values = reinterpret_cast<float*>(rows);  // of a vector
                   for (int64_t i = 0; spec.less_one && i < n; ++i) values[i] += 1;
                   for (int64_t i = 0; spec.scale != 1 && i < n; ++i) values[i] *= spec.scale;
                   for (int64_t i = 0; is_log_rate && i < n; ++i) {
                     values[i] = static_cast<float>(-kernels::ExactExp(double{values[i]}));
                   }
                   kernels::Tensor to = data;
                   to.data = static_cast<uint8_t*>(data.data) +
                             row * data.cols() * static_cast<int64_t>(kernels::SizeOf(data.dtype));
                   to.shape[0] = n;
                   device.CopyIn(to, rows);
                 });
}

// Everything that a rank's bytes depend on, except the checkpoint.
std::string CacheKey(const PlaceRules& rules) {
  std::string key =
      absl::StrCat(rules.device.name(), ";", kernels::kArithmeticVersion, ";", kAlignment);
  ModelWeights places;
  for (const WeightSpec& spec : ListWeights(rules.config, places)) {
    const Part part = PartOf(spec, rules.shard, rules.config);
    const Placed placed = Place(spec, part, rules);
    absl::StrAppend(&key, ";", spec.name.size(), ":", spec.name, ShapeText(spec.shape), " ",
                    part.rows.begin, "-", part.rows.end, ",", part.columns.begin, "-",
                    part.columns.end, " ", absl::StrJoin(placed.splits, ","), " ", placed.bytes,
                    " ", static_cast<int>(placed.weight.format), ",",
                    static_cast<int>(placed.weight.data.dtype), ",", spec.less_one ? 1 : 0);
    if (placed.kept.has_value()) {
      const kernels::GroupFormat& groups = placed.kept->groups;
      absl::StrAppend(&key, ",groups ", groups.size, ",", groups.unit, ",",
                      static_cast<int>(groups.scales), groups.has_minimum ? "m" : ",",
                      static_cast<int>(groups.codes));
    }
    const auto& [head, rotated, rotated_last, group, group_begin, group_stride] = spec.order;
    if (!spec.order.is_plain()) {
      absl::StrAppend(&key, ",", head, ",", rotated, rotated_last ? "l," : ",", group, ",",
                      group_begin, ",", group_stride);
    }
    if (spec.is_log_rate) absl::StrAppend(&key, ",log_rate");
    if (spec.scale != 1) absl::StrAppend(&key, ",", std::bit_cast<uint32_t>(spec.scale));
  }
  return key;
}

// Returns the digest of a tensor's bytes; a quantised matrix has that of all its parts.
Digest128 StoredDigest(const StoredTensor& stored) {
  if (stored.quantised == nullptr) return DigestOf(stored.bytes);
  std::vector<TensorDigest> parts;
  for (const quantised::StoredPart& part : stored.quantised->parts) {
    parts.push_back({part.name, part.dtype, part.shape, DigestOf(part.bytes)});
  }
  return WeightsDigest(std::move(parts));
}

// True for a bias whose elements are all zero: AutoGPTQ writes them to modules that have none.
bool IsZeroBias(const std::string& name, const StoredTensor& tensor) {
  return name.ends_with(".bias") &&
         std::ranges::all_of(tensor.bytes, [](uint8_t byte) { return byte == 0; });
}

// The first by name of the tensors that the model does not read, and why it is there; empty where
// it reads all but harmless ones.
std::string FirstUnread(const ModelConfig& config, const Checkpoint& checkpoint,
                        const std::vector<WeightSpec>& specs) {
  absl::flat_hash_set<std::string_view> read;
  for (const WeightSpec& spec : specs) read.insert(spec.name);
  if (config.tied_embeddings) read.insert(kHead);
  const std::vector<std::string> of_scores = ScoreHeadTensors(config);
  read.insert(of_scores.begin(), of_scores.end());
  const std::string* first = nullptr;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (read.contains(name) || IsHarmlessTensor(name) || IsZeroBias(name, tensor)) continue;
    if (!SkippedPart(config, name).empty() || MatchesAny(config.allow_unread, name)) continue;
    if (first == nullptr || name < *first) first = &name;
  }
  if (first == nullptr) return "";
  return absl::StrCat(ShowJson(checkpoint.Find(*first)->name), WhyUnread(config, *first));
}

// A tied head may be stored, too, if it is the embedding.
absl::Status CheckTiedHead(const ModelConfig& config, const Checkpoint& checkpoint,
                           const std::string& embedding_name) {
  const StoredTensor* const head = config.tied_embeddings ? checkpoint.Find(kHead) : nullptr;
  if (head == nullptr) return absl::OkStatus();
  const StoredTensor& embedding = *checkpoint.Find(embedding_name);
  const bool is_plain = head->quantised == nullptr && embedding.quantised == nullptr;
  if (is_plain && head->dtype == embedding.dtype &&
      std::ranges::equal(head->bytes, embedding.bytes)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("weights: tensor ", head->name, " differs from ", embedding.name,
                   ", and config.json says that they are one; set tie_word_embeddings to false to "
                   "use it, or take it out"));
}

}  // namespace

const StoredTensor* FindHead(const ModelConfig& config, const Checkpoint& checkpoint) {
  if (!config.tied_embeddings) return checkpoint.Find(kHead);
  ModelWeights places;
  return checkpoint.Find(ListWeights(config, places).front().name);
}

bool HasHead(const Checkpoint& checkpoint) { return checkpoint.Find(kHead) != nullptr; }

int64_t NumParameters(const ModelConfig& config) {
  ModelWeights places;
  int64_t total = 0;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    total += spec.rows.size() * (spec.shape.size() == 2 ? spec.shape[1] : 1);
  }
  return total;
}

std::string DescribeSkipped(const ModelConfig& config, const Checkpoint& checkpoint) {
  std::map<std::string, int> parts;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string_view part = SkippedPart(config, name);
    if (!part.empty()) ++parts[std::string(part)];
  }
  if (parts.empty()) return "";
  std::string list;
  for (const auto& [part, count] : parts) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", count, " of ", part);
  }
  const bool has_module =
      config.knows_mtp && !config.reads_mtp && checkpoint.Find("mtp.fc.weight") != nullptr;
  return absl::StrCat("weights: tensors are skipped: ", list,
                      has_module ? "; --speculation=mtp reads those of mtp." : "");
}

absl::Status CheckWeights(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelWeights places;
  const std::vector<WeightSpec> specs = ListWeights(config, places);
  const std::string unread = FirstUnread(config, checkpoint, specs);
  for (const WeightSpec& spec : specs) {
    const StoredTensor* stored = checkpoint.Find(spec.name);
    if (stored == nullptr) {
      std::string hint;
      if (spec.name == kHead) {
        hint =
            "; where the head is the embedding, config.json has to say so (tie_word_embeddings: "
            "true); a model without a head gives no tokens";
      } else if (!unread.empty()) {
        hint = absl::StrCat("; there is ", unread);
      }
      return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", spec.name, ", ",
                                                     ShapeText(spec.shape), ", is missing", hint));
    }
    if (stored->shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights: tensor ", spec.name, " has the shape ", ShapeText(stored->shape),
                       ", config.json asks for ", ShapeText(spec.shape)));
    }
    if (stored->quantised != nullptr) continue;
    const StoredType* const type = FindStoredType(stored->dtype);
    if (type == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", spec.name, " is ",
                                                     stored->dtype, "; ", StoredTypeNames(),
                                                     " are supported"));
    }
    if (type->block > 1 && spec.shape.size() == 1) {
      return absl::InvalidArgumentError(absl::StrCat("weights: tensor ", spec.name, " is ",
                                                     stored->dtype,
                                                     "; gains and biases are not supported "
                                                     "in blocks of ",
                                                     type->block, " elements"));
    }
  }
  if (unread.empty()) return CheckTiedHead(config, checkpoint, specs.front().name);
  return absl::InvalidArgumentError(absl::StrCat("weights: the model would not read the tensor ",
                                                 unread, "; --allow_unread takes it"));
}

kernels::DType AutoType(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelWeights places;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    const StoredTensor* stored = checkpoint.Find(spec.name);
    const bool is_bf16 =
        stored != nullptr &&
        (stored->quantised != nullptr ? stored->quantised->value_type == kernels::DType::kBF16
                                      : stored->dtype == "BF16");
    if (spec.shape.size() == 2 && !is_bf16) return kernels::DType::kF32;
  }
  return kernels::DType::kBF16;
}

std::vector<TensorDigest> DigestWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                        int num_threads) {
  ModelWeights places;
  std::vector<WeightSpec> specs = ListWeights(config, places);
  // A stored tensor counts once, even if several tensors are rows of it.
  specs.erase(
      std::unique(specs.begin(), specs.end(),
                  [](const WeightSpec& a, const WeightSpec& b) { return a.name == b.name; }),
      specs.end());
  std::vector<TensorDigest> digests(specs.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < specs.size(); i = next.fetch_add(1)) {
      const StoredTensor* stored = checkpoint.Find(specs[i].name);
      if (stored == nullptr) continue;
      std::string dtype = stored->dtype;
      if (stored->interleaved_head != 0) {
        absl::StrAppend(&dtype, " interleaved by ", stored->interleaved_head);
      }
      if (stored->tiled.groups != 0) {
        absl::StrAppend(&dtype, " tiled by ", stored->tiled.groups, " from ", stored->tiled.begin);
      }
      if (stored->turned_head != 0) {
        absl::StrAppend(&dtype, " by columns of ", stored->turned_head);
      }
      if (stored->is_rate) absl::StrAppend(&dtype, " rates");
      if (stored->is_view()) {
        absl::StrAppend(&dtype, " rows ", stored->row_begin, "+", stored->row_step, " columns ",
                        stored->column_stride);
      }
      digests[i] = {specs[i].name, std::move(dtype), stored->shape, StoredDigest(*stored)};
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return digests;
}

bool JoinsHeads(const ModelConfig& config, const Shard& shard, const kernels::Device& device) {
  const auto in_units = [&](const Range& heads) {
    return heads.size() > 0 && heads.size() * config.head_dim % kernels::kPackedRows == 0;
  };
  return device.ops().attention.TakesJoinedHeads() && config.has_plain_heads() &&
         in_units(shard.heads) && in_units(shard.kv_heads);
}

int64_t WeightBytes(const ModelConfig& config, const Shard& shard, const Checkpoint& checkpoint,
                    kernels::WeightType type, const kernels::Device& device) {
  ModelWeights places;
  int64_t bytes = 0;
  for (const Joint& joint :
       JointsOf(ListWeights(config, places), {config, shard, checkpoint, type, device})) {
    bytes += AlignUp(joint.placed.bytes);
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Load(
    const ModelConfig& config, const Shard& shard, const Checkpoint& checkpoint,
    kernels::WeightType type, kernels::Device& device, const WeightsCache* cache) {
  std::unique_ptr<Weights> weights(new Weights(device));
  const PlaceRules rules = {config, shard, checkpoint, type, device};
  weights->bytes_ = WeightBytes(config, shard, checkpoint, type, device);
  ASSIGN_OR_RETURN(weights->memory_, device.Allocate(static_cast<size_t>(weights->bytes_)));
  // The cache reads into the weights' own memory, so that has to be the host's.
  const bool is_cached = cache != nullptr && device.SharesHostMemory() &&
                         device.ops().matmul.FormatOf(type) != kernels::WeightFormat::kDense &&
                         weights->bytes_ > 0;
  const auto loop = [&device](int n, absl::FunctionRef<void(int)> body) {
    device.ParallelFor(n, body);
  };
  const std::string key = CacheKey(rules);
  if (is_cached) {
    const absl::Status read = cache->Read(
        key, {static_cast<uint8_t*>(weights->memory_), static_cast<size_t>(weights->bytes_)}, loop);
    weights->is_from_cache_ = read.ok();
    if (absl::IsDataLoss(read)) {
      // The failed read has overwritten memory that must be zero.
      device.Free(std::exchange(weights->memory_, nullptr));
      ASSIGN_OR_RETURN(weights->memory_, device.Allocate(static_cast<size_t>(weights->bytes_)));
    }
    if (!absl::IsNotFound(read)) weights->cache_status_ = read;
  }
  const std::vector<WeightSpec> specs = ListWeights(config, weights->model_);
  std::vector<uint8_t> staging;
  int64_t offset = 0;
  for (Joint& joint : JointsOf(specs, rules)) {
    const WeightSpec& first = specs[joint.begin];
    Placed& placed = joint.placed;
    placed.weight.data.data = static_cast<uint8_t*>(weights->memory_) + offset;
    offset += AlignUp(placed.bytes);
    const bool is_joined = joint.parts.size() > 1;
    if (first.stacked_vector != nullptr) {
      *first.stacked_vector = placed.weight.data;
      kernels::Tensor& stack = *first.stacked_vector;
      const auto count = static_cast<int64_t>(joint.parts.size());
      stack.shape = {count, stack.size() / count, 1};
    } else if (first.matrix != nullptr) {
      *(is_joined ? first.joined_matrix : first.matrix) = placed.weight;
    } else {
      *(is_joined ? first.joined_vector : first.vector) = placed.weight.data;
    }
    if (weights->is_from_cache_) continue;
    int64_t row = 0;
    for (size_t i = 0; i < joint.parts.size(); ++i) {
      const WeightSpec& spec = specs[joint.begin + i];
      const Part& part = joint.parts[i];
      RETURN_IF_ERROR(Fill(placed, row, *checkpoint.Find(spec.name), spec, part, device, staging));
      row += part.rows.size();
    }
  }
  if (config.tied_embeddings) weights->model_.head = weights->model_.embedding;
  RETURN_IF_ERROR(device.Synchronize());
  if (is_cached && !weights->is_from_cache_) {
    weights->cache_status_.Update(cache->Write(
        key, {static_cast<const uint8_t*>(weights->memory_), static_cast<size_t>(weights->bytes_)},
        loop));
  }
  return weights;
}

Weights::~Weights() {
  if (memory_ != nullptr) device_.Free(memory_);
}

}  // namespace continuo::model
