// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/bfloat16.h"
#include "services/base/status_macros.h"

namespace continuo {
namespace {

constexpr int64_t kAlignment = 64;          // bytes; where each tensor begins
constexpr int64_t kStagingBytes = 4 << 20;  // of converted rows, copied in at a time

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The rows and columns of a stored tensor that a rank takes. A vector is a column of rows.
struct Part {
  Range rows, columns;
};

Part PartOf(const WeightSpec& spec, const Shard& shard, int64_t head_dim) {
  Part part;
  part.rows = {0, spec.rows.size()};
  part.columns = {0, spec.shape.size() == 2 ? spec.shape[1] : 1};
  const auto times = [](Range range, int64_t n) { return Range{range.begin * n, range.end * n}; };
  switch (spec.cut) {
    case Cut::kWhole:
      break;
    case Cut::kHeadRows:
      part.rows = times(shard.heads, head_dim);
      break;
    case Cut::kKvHeadRows:
      part.rows = times(shard.kv_heads, head_dim);
      break;
    case Cut::kInnerRows:
      part.rows = shard.inner;
      break;
    case Cut::kVocabRows:
      part.rows = shard.vocab;
      break;
    case Cut::kHeadColumns:
      part.columns = times(shard.heads, head_dim);
      break;
    case Cut::kInnerColumns:
      part.columns = shard.inner;
      break;
    case Cut::kExpertRows:
      part.rows = shard.expert_inner;
      break;
    case Cut::kExpertColumns:
      part.columns = shard.expert_inner;
      break;
  }
  part.rows = {part.rows.begin + spec.rows.begin, part.rows.end + spec.rows.begin};
  return part;
}

// Matrices are computed in `dtype`, gains and biases in f32.
Tensor Place(const WeightSpec& spec, const Part& part, DType dtype) {
  if (spec.shape.size() == 1) return {nullptr, DType::kF32, {part.rows.size(), 1, 1}};
  return {nullptr, dtype, {part.rows.size(), part.columns.size(), 1}};
}

// n elements of the type named in the file, at any address, to `dtype`.
void Convert(void* out, DType dtype, const uint8_t* in, std::string_view stored, int64_t n) {
  const bool narrow = stored != "F32";
  for (int64_t i = 0; i < n; ++i) {
    float value;
    if (narrow) {
      uint16_t bits;
      std::memcpy(&bits, in + 2 * i, 2);
      value = stored == "BF16" ? FromBF16(bits) : FromF16(bits);
    } else {
      std::memcpy(&value, in + 4 * i, 4);
    }
    if (dtype == DType::kF32) {
      static_cast<float*>(out)[i] = value;
    } else {
      static_cast<uint16_t*>(out)[i] = ToBF16(value);
    }
  }
}

bool SameType(std::string_view stored, DType dtype) {
  return (stored == "F32" && dtype == DType::kF32) || (stored == "BF16" && dtype == DType::kBF16);
}

// Copies the rank's part of a stored tensor into `tensor`, converted.
absl::Status CopyPart(const StoredTensor& stored, const WeightSpec& spec, const Part& part,
                      Backend& backend, std::vector<uint8_t>& staging) {
  const Tensor& tensor = *spec.tensor;
  if (tensor.size() == 0) return absl::OkStatus();
  const int64_t stored_columns = spec.shape.size() == 2 ? spec.shape[1] : 1;
  const int64_t stored_element = stored.dtype == "F32" ? 4 : 2;
  const auto source = [&](int64_t row) {
    return stored.bytes.data() +
           ((part.rows.begin + row) * stored_columns + part.columns.begin) * stored_element;
  };
  if (SameType(stored.dtype, tensor.dtype) && part.columns.size() == stored_columns &&
      !spec.less_one) {
    backend.CopyIn(tensor, source(0));
    return absl::OkStatus();
  }
  const int64_t row_bytes = part.columns.size() * static_cast<int64_t>(SizeOf(tensor.dtype));
  const int64_t chunk = std::max<int64_t>(1, kStagingBytes / row_bytes);
  for (int64_t row = 0; row < part.rows.size(); row += chunk) {
    const int64_t n = std::min(chunk, part.rows.size() - row);
    staging.resize(static_cast<size_t>(n * row_bytes));
    constexpr int kTasks = 16;
    backend.ParallelFor(kTasks, [&](int task) {
      for (int64_t r = n * task / kTasks; r < n * (task + 1) / kTasks; ++r) {
        Convert(staging.data() + r * row_bytes, tensor.dtype, source(row + r), stored.dtype,
                part.columns.size());
      }
    });
    if (spec.less_one) {  // a vector of f32
      float* const gains = reinterpret_cast<float*>(staging.data());
      for (int64_t i = 0; i < n; ++i) gains[i] += 1;
    }
    Tensor rows = tensor;
    rows.data = static_cast<uint8_t*>(tensor.data) + row * row_bytes;
    rows.shape[0] = n;
    backend.CopyIn(rows, staging.data());
    RETURN_IF_ERROR(backend.Synchronize());  // staging is filled again
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWeights(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelWeights places;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    const StoredTensor* stored = checkpoint.Find(spec.name);
    if (stored == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights: tensor ", spec.name, ", ", ShapeText(spec.shape), ", is missing"));
    }
    if (stored->shape != spec.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights: tensor ", spec.name, " has the shape ", ShapeText(stored->shape),
                       ", config.json asks for ", ShapeText(spec.shape)));
    }
    if (stored->dtype != "F32" && stored->dtype != "F16" && stored->dtype != "BF16") {
      return absl::InvalidArgumentError(absl::StrCat(
          "weights: tensor ", spec.name, " is ", stored->dtype, "; F32, F16 and BF16 are taken"));
    }
  }
  return absl::OkStatus();
}

DType StoredType(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelWeights places;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    const StoredTensor* stored = checkpoint.Find(spec.name);
    if (spec.shape.size() == 2 && (stored == nullptr || stored->dtype != "BF16")) {
      return DType::kF32;
    }
  }
  return DType::kBF16;
}

std::vector<TensorDigest> DigestWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                        int num_threads) {
  ModelWeights places;
  std::vector<WeightSpec> specs = ListWeights(config, places);
  // A stored tensor counts once, however many are made of it.
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
      digests[i] = {stored->name, stored->dtype, stored->shape, DigestOf(stored->bytes)};
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return digests;
}

int64_t WeightBytes(const ModelConfig& config, const Shard& shard, DType dtype) {
  ModelWeights places;
  int64_t bytes = 0;
  for (const WeightSpec& spec : ListWeights(config, places)) {
    const Tensor tensor = Place(spec, PartOf(spec, shard, config.head_dim), dtype);
    bytes += AlignUp(static_cast<int64_t>(tensor.bytes()));
  }
  return bytes;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Load(const ModelConfig& config,
                                                       const Shard& shard,
                                                       const Checkpoint& checkpoint, DType dtype,
                                                       Backend& backend) {
  std::unique_ptr<Weights> weights(new Weights(backend));
  weights->bytes_ = WeightBytes(config, shard, dtype);
  ASSIGN_OR_RETURN(weights->memory_, backend.Allocate(static_cast<size_t>(weights->bytes_)));
  const std::vector<WeightSpec> specs = ListWeights(config, weights->model_);
  std::vector<uint8_t> staging;
  int64_t offset = 0;
  for (const WeightSpec& spec : specs) {
    const Part part = PartOf(spec, shard, config.head_dim);
    *spec.tensor = Place(spec, part, dtype);
    spec.tensor->data = static_cast<uint8_t*>(weights->memory_) + offset;
    offset += AlignUp(static_cast<int64_t>(spec.tensor->bytes()));
    RETURN_IF_ERROR(CopyPart(*checkpoint.Find(spec.name), spec, part, backend, staging));
  }
  if (config.tied_embeddings) weights->model_.head = weights->model_.embedding;
  RETURN_IF_ERROR(backend.Synchronize());
  return weights;
}

Weights::~Weights() {
  if (memory_ != nullptr) backend_.Free(memory_);
}

}  // namespace continuo
