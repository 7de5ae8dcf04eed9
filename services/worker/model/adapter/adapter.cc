// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/adapter/adapter.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/worker/model/checkpoint/stored_types.h"
#include "services/worker/model/checkpoint/weight_source.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/json_file.h"

namespace continuo::model {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

// A matrix of the model that a module changes.
struct Target {
  int layer = 0;
  AdaptedMatrix matrix = AdaptedMatrix::kQ;
  const WeightSpec* spec = nullptr;
};

// The cut of each matrix that an adapter may change, in the order of AdaptedMatrix. Another one
// tells a matrix of another kind in its place.
constexpr std::array<Cut, kNumAdaptedMatrices> kCuts = {
    Cut::kHeadRows,    Cut::kKvHeadRows, Cut::kKvHeadRows, Cut::kHeadRows,
    Cut::kHeadColumns, Cut::kInnerRows,  Cut::kInnerRows,  Cut::kInnerColumns};

using Places = std::array<const kernels::Weight*, kNumAdaptedMatrices>;

Places PlacesOf(const LayerWeights& w) {
  return {&w.q, &w.k, &w.v, &w.output_gate, &w.o, &w.gate, &w.up, &w.down};
}

bool IsAttention(AdaptedMatrix matrix) { return matrix <= AdaptedMatrix::kO; }

// The modules of the model that an adapter may change, by their canonical names; a module of
// several matrices of the model has several targets.
class Targets {
 public:
  explicit Targets(const ModelConfig& config) {
    specs_ = ListWeights(config, places_);
    for (int layer = 0; layer < config.num_layers; ++layer) {
      const Places places = PlacesOf(places_.layers[static_cast<size_t>(layer)]);
      for (size_t i = 0; i < places.size(); ++i) by_place_[places[i]] = {layer, i};
    }
    for (const WeightSpec& spec : specs_) {
      const std::string module = spec.name.substr(0, spec.name.rfind('.'));
      const auto at = spec.matrix == nullptr ? by_place_.end() : by_place_.find(spec.matrix);
      if (at == by_place_.end()) {
        others_.insert_or_assign(module, true);
        continue;
      }
      const auto [layer, i] = at->second;
      const auto matrix = static_cast<AdaptedMatrix>(i);
      if (spec.cut != kCuts[i] || (IsAttention(matrix) && config.is_latent())) {
        others_.insert_or_assign(module, true);
        continue;
      }
      targets_[module].push_back({layer, matrix, &spec});
    }
  }

  absl::StatusOr<std::span<const Target>> Find(const AdapterModule& module) const {
    if (const auto at = targets_.find(module.canonical); at != targets_.end()) {
      return std::span<const Target>(at->second);
    }
    const std::string name = ShowJson(nlohmann::json(module.name));
    return absl::UnimplementedError(
        others_.contains(module.canonical)
            ? absl::StrCat("module ", name, " is of a kind that adapters do not change here")
            : absl::StrCat("the model has no module ", name, " that adapters may change"));
  }

  // An adapter of all of them, without its values.
  std::vector<AdapterModule> AllModules(int rank) const {
    std::vector<AdapterModule> all;
    for (const auto& [name, targets] : targets_) {
      const std::vector<int64_t>& shape = targets[0].spec->shape;
      all.push_back({.name = name,
                     .canonical = name,
                     .rank = rank,
                     .factor = 1,
                     .a = {.dtype = "F32", .shape = {rank, shape[1]}},
                     .b = {.dtype = "F32", .shape = {shape[0], rank}}});
    }
    return all;
  }

 private:
  ModelWeights places_;
  std::vector<WeightSpec> specs_;
  std::map<const kernels::Weight*, std::pair<int, size_t>> by_place_;
  std::map<std::string, std::vector<Target>> targets_;
  std::map<std::string, bool> others_;
};

// A module whose shapes fit the model.
struct Fitted {
  const AdapterModule* module;
  std::span<const Target> targets;
};

absl::StatusOr<std::vector<Fitted>> Fit(std::span<const AdapterModule> modules,
                                        const Targets& targets) {
  std::vector<Fitted> all;
  std::map<std::string_view, const AdapterModule*> seen;
  for (const AdapterModule& module : modules) {
    ASSIGN_OR_RETURN(const std::span<const Target> found, targets.Find(module));
    const std::vector<int64_t>& shape = found[0].spec->shape;
    const auto check = [&](const StoredTensor& tensor, int64_t rows,
                           int64_t columns) -> absl::Status {
      if (tensor.shape == std::vector<int64_t>{rows, columns}) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", ShowJson(nlohmann::json(tensor.name)), " has the shape [",
          absl::StrJoin(tensor.shape, ", "), "]; the model needs [", rows, ", ", columns, "]"));
    };
    RETURN_IF_ERROR(check(module.a, module.rank, shape[1]));
    RETURN_IF_ERROR(check(module.b, shape[0], module.rank));
    if (!seen.emplace(module.canonical, &module).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("modules ", ShowJson(nlohmann::json(seen.at(module.canonical)->name)),
                       " and ", ShowJson(nlohmann::json(module.name)), " are the same one"));
    }
    all.push_back({&module, found});
  }
  return all;
}

// Gives tensors memory, one after the other: or only counts, where there is no memory yet.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  kernels::Tensor Place(kernels::DType dtype, int64_t rows, int64_t columns) {
    const kernels::Tensor tensor = {
        memory_ == nullptr ? nullptr : memory_ + used_, dtype, {rows, columns, 1}};
    used_ += (static_cast<int64_t>(tensor.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
    return tensor;
  }
  int64_t used() const { return used_; }

 private:
  std::byte* const memory_;
  int64_t used_ = 0;
};

void SetElement(const kernels::Tensor& to, int64_t element, const std::byte* value) {
  const size_t size = kernels::SizeOf(to.dtype);
  std::memcpy(static_cast<std::byte*>(to.data) + static_cast<size_t>(element) * size, value, size);
}

// Copies columns of row `row` of a stored matrix to column `column` of `to`, one below the other.
void CopyAsColumn(const StoredTensor& stored, int64_t row, const Range& columns,
                  const kernels::Tensor& to, int64_t column, std::vector<std::byte>& buffer) {
  const StoredType& type = *FindStoredType(stored.dtype);
  const size_t size = kernels::SizeOf(to.dtype);
  buffer.resize(static_cast<size_t>(columns.size()) * size);
  // Wider types take every value of narrower ones.
  CONTINUO_CHECK(type.convert(buffer.data(), to.dtype,
                              stored.bytes.data() + row * stored.shape[1] * type.bytes,
                              columns.begin, columns.size()));
  for (int64_t i = 0; i < columns.size(); ++i) {
    SetElement(to, i * to.cols() + column, buffer.data() + static_cast<size_t>(i) * size);
  }
}

// Lays out a rank's layers in the arena's memory, and fills them where there is some.
std::vector<AdapterLayer> LayOutLayers(const std::vector<Fitted>& modules,
                                       const ModelConfig& config, const Shard& shard,
                                       kernels::DType dtype, Arena& arena, bool fills) {
  std::vector<AdapterLayer> layers(static_cast<size_t>(config.num_layers));
  std::vector<std::byte> buffer;
  // The widths first, since modules lie side by side.
  for (const Fitted& fitted : modules) {
    const Target& first = fitted.targets[0];
    layers[static_cast<size_t>(first.layer)].widths[static_cast<size_t>(InputOf(first.matrix))] +=
        fitted.module->rank;
  }
  std::vector<std::array<int64_t, kNumAdapterInputs>> filled(layers.size());
  for (const Fitted& fitted : modules) {
    const Target& first = fitted.targets[0];
    const AdapterModule& module = *fitted.module;
    const auto layer = static_cast<size_t>(first.layer);
    const auto input = static_cast<size_t>(InputOf(first.matrix));
    const WeightPart part = PartOf(*first.spec, shard, config);
    kernels::Tensor& a = layers[layer].a[input];
    if (filled[layer][input] == 0) {
      a = arena.Place(dtype, part.columns.size(), layers[layer].widths[input]);
    }
    const int64_t begin = filled[layer][input];
    filled[layer][input] += module.rank;
    for (int64_t i = 0; fills && i < module.rank; ++i) {
      CopyAsColumn(module.a, i, part.columns, a, begin + i, buffer);
    }
    for (const Target& target : fitted.targets) {
      const WeightPart rows = PartOf(*target.spec, shard, config);
      AdapterLayer::Expansion& b = layers[layer].b[static_cast<size_t>(target.matrix)];
      b.b = arena.Place(dtype, module.rank, rows.rows.size());
      b.first = begin;
      b.factor = static_cast<float>(module.factor);
      for (int64_t i = 0; fills && i < rows.rows.size(); ++i) {
        const int64_t stored = target.spec->order.StoredRow(rows.rows.begin + i);
        CopyAsColumn(module.b, stored, {0, module.rank}, b.b, i, buffer);
      }
    }
  }
  return layers;
}

kernels::DType TypeOf(std::span<const AdapterModule> modules) {
  const auto is_bf16 = [](const AdapterModule& module) {
    return module.a.dtype == "BF16" && module.b.dtype == "BF16";
  };
  return std::ranges::all_of(modules, is_bf16) ? kernels::DType::kBF16 : kernels::DType::kF32;
}

int64_t CountBytes(std::span<const AdapterModule> modules, const std::vector<Fitted>& fitted,
                   const ModelConfig& config, std::span<const Shard> shards) {
  Arena arena(nullptr);
  for (const Shard& shard : shards) {
    (void)LayOutLayers(fitted, config, shard, TypeOf(modules), arena, /*fills=*/false);
  }
  return arena.used();
}

Digest128 DigestModules(std::span<const AdapterModule> modules) {
  std::vector<TensorDigest> tensors;
  std::string factors;
  for (const AdapterModule& module : modules) {
    tensors.push_back(
        {module.canonical + ".lora_A", module.a.dtype, module.a.shape, DigestOf(module.a.bytes)});
    tensors.push_back(
        {module.canonical + ".lora_B", module.b.dtype, module.b.shape, DigestOf(module.b.bytes)});
    const auto factor = static_cast<float>(module.factor);
    absl::StrAppend(&factors, module.canonical.size(), ":", module.canonical, "=",
                    std::bit_cast<uint32_t>(factor), ";");
  }
  return DigestOf(absl::StrCat(ToHex(WeightsDigest(std::move(tensors))), ";", factors));
}

}  // namespace

AdapterInput InputOf(AdaptedMatrix matrix) {
  if (matrix < AdaptedMatrix::kO) return AdapterInput::kAttention;
  if (matrix == AdaptedMatrix::kO) return AdapterInput::kAttentionOutput;
  return matrix == AdaptedMatrix::kDown ? AdapterInput::kMlpOutput : AdapterInput::kMlp;
}

void Adapter::Free::operator()(std::byte* memory) const { std::free(memory); }

absl::StatusOr<int64_t> Adapter::Bytes(std::span<const AdapterModule> modules,
                                       const ModelConfig& config, std::span<const Shard> shards) {
  const Targets targets(config);
  ASSIGN_OR_RETURN(const std::vector<Fitted> fitted, Fit(modules, targets));
  return CountBytes(modules, fitted, config, shards);
}

int64_t Adapter::MostBytes(const ModelConfig& config, std::span<const Shard> shards, int rank) {
  const Targets targets(config);
  const std::vector<AdapterModule> modules = targets.AllModules(rank);
  const absl::StatusOr<std::vector<Fitted>> fitted = Fit(modules, targets);
  CONTINUO_CHECK(fitted.ok());
  return CountBytes(modules, *fitted, config, shards);
}

int64_t Adapter::MostFileBytes(const ModelConfig& config, int rank) {
  int64_t values = 0;
  for (const AdapterModule& module : Targets(config).AllModules(rank)) {
    values += rank * (module.a.shape[1] + module.b.shape[0]);
  }
  return values * static_cast<int64_t>(sizeof(float));
}

absl::StatusOr<Digest128> Adapter::Digest(std::span<const AdapterModule> modules,
                                          const ModelConfig& config) {
  RETURN_IF_ERROR(Fit(modules, Targets(config)).status());
  return DigestModules(modules);
}

absl::StatusOr<std::shared_ptr<const Adapter>> Adapter::Make(std::span<const AdapterModule> modules,
                                                             const ModelConfig& config,
                                                             std::span<const Shard> shards) {
  const Targets targets(config);
  ASSIGN_OR_RETURN(const std::vector<Fitted> fitted, Fit(modules, targets));
  auto adapter = std::make_shared<Adapter>();
  adapter->bytes_ = CountBytes(modules, fitted, config, shards);
  adapter->memory_.reset(static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, static_cast<size_t>(std::max(adapter->bytes_, kAlignment)))));
  if (adapter->memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate the adapter's ", adapter->bytes_, " bytes"));
  }
  Arena arena(adapter->memory_.get());
  for (const Shard& shard : shards) {
    const int64_t begin = arena.used();
    adapter->ranks_.push_back(
        LayOutLayers(fitted, config, shard, TypeOf(modules), arena, /*fills=*/true));
    adapter->places_.emplace_back(begin, arena.used());
  }
  adapter->digest_ = DigestModules(modules);
  return adapter;
}

}  // namespace continuo::model
