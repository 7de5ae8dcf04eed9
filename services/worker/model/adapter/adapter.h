// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"
#include "services/worker/model/adapter/adapter_files.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {

// The inputs of a layer's matrices that an adapter may change.
enum class AdapterInput : uint8_t { kAttention, kAttentionOutput, kMlp, kMlpOutput };
inline constexpr size_t kNumAdapterInputs = 4;

// These matrices, as LayerWeights has them: the first four of kAttention, then one of
// kAttentionOutput, two of kMlp and one of kMlpOutput.
enum class AdaptedMatrix : uint8_t { kQ, kK, kV, kOutputGate, kO, kGate, kUp, kDown };
inline constexpr size_t kNumAdaptedMatrices = 8;

// The input that a matrix reads.
AdapterInput InputOf(AdaptedMatrix matrix);

// One rank's part of an adapter in a layer. What the layer does not have is empty.
struct AdapterLayer {
  // Aᵀ of all modules that read an input, side by side: [columns of this rank, width].
  std::array<kernels::Tensor, kNumAdapterInputs> a;
  std::array<int, kNumAdapterInputs> widths = {};  // of these; the same on every rank
  struct Expansion {
    kernels::Tensor b;  // Bᵀ: [rank, rows of this rank]
    int64_t first = 0;  // column of a's product at which the rank's values begin
    float factor = 0;
  };
  std::array<Expansion, kNumAdaptedMatrices> b;

  const kernels::Tensor& a_of(AdapterInput input) const { return a[static_cast<size_t>(input)]; }
  int width_of(AdapterInput input) const { return widths[static_cast<size_t>(input)]; }
  const Expansion& b_of(AdaptedMatrix matrix) const { return b[static_cast<size_t>(matrix)]; }
};

// A LoRA adapter in the host's memory, cut for the ranks of one model: f32, or bf16 where all its
// files are. Immutable; thread-safe.
class Adapter {
 public:
  // Checks the modules of an adapter's files against the model and copies what each rank needs.
  // Errors name the module or tensor: Unimplemented a module that the model does not have, or none
  // that an adapter may change (experts, embeddings, heads, layers with a recurrent state, latent
  // attention); InvalidArgument a tensor of another shape; ResourceExhausted where there is not
  // enough memory.
  static absl::StatusOr<std::shared_ptr<const Adapter>> Make(std::span<const AdapterModule> modules,
                                                             const ModelConfig& config,
                                                             std::span<const Shard> shards);
  // The bytes of memory that Make takes.
  static absl::StatusOr<int64_t> Bytes(std::span<const AdapterModule> modules,
                                       const ModelConfig& config, std::span<const Shard> shards);

  // The bytes that an adapter of all modules that the model has takes, with matrices of this rank
  // in fp32. No adapter of smaller ranks takes more.
  static int64_t MostBytes(const ModelConfig& config, std::span<const Shard> shards, int rank);
  // The same of the values in its file, on any number of shards.
  static int64_t MostFileBytes(const ModelConfig& config, int rank);
  // What digest() would be. Errors are those of Make but for the memory.
  static absl::StatusOr<Digest128> Digest(std::span<const AdapterModule> modules,
                                          const ModelConfig& config);

  // The layers of a rank.
  std::span<const AdapterLayer> layers(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  // The memory that these layers' tensors lie in.
  std::span<const std::byte> memory(int rank) const {
    const auto& [begin, end] = places_[static_cast<size_t>(rank)];
    return {memory_.get() + begin, static_cast<size_t>(end - begin)};
  }
  // Of all that an answer depends on: matrices and factors.
  const Digest128& digest() const { return digest_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::unique_ptr<std::byte[], Free> memory_;
  int64_t bytes_ = 0;
  std::vector<std::vector<AdapterLayer>> ranks_;
  std::vector<std::pair<int64_t, int64_t>> places_;  // of the ranks' layers in the memory
  Digest128 digest_;
};

// The largest width that an AdapterLayer's a can have, with matrices of the largest rank.
inline constexpr int kMaxAdapterWidth = 4 * kMaxAdapterRank;

}  // namespace continuo::model
