// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/gguf/gguf_file.h"

namespace continuo::gguf {

// How an architecture of GGUF ("llama") is written as a Hugging Face model.
struct Architecture {
  std::string_view name;          // general.architecture
  std::string_view hugging_face;  // "LlamaForCausalLM"
  // Rows of queries and keys are stored with each rotated pair side by side; Hugging Face has the
  // first halves of a head's pairs, then the second ones.
  bool interleaved_heads = false;
  bool gains_include_one = false;  // of a family whose Hugging Face files have gains minus one
  // Gate and up of a shared MLP are two tensors, which Hugging Face's files have in one: the names
  // that NamedTensors gives are those of ExpertNames::kGraniteParts and, in Granite 4,
  // WeightNames::kHybridParts.
  bool splits_shared_mlp = false;
  // Queries, keys and values of the delta rule are a tensor, and z is another, as
  // WeightNames::kQwen3NextParts names them.
  bool splits_qkvz = false;
  // The last block may be a module for multi-token prediction of Qwen's form.
  bool may_have_module = false;
};

// The values of expert_gating_func that are known.
inline constexpr int64_t kSoftmaxGating = 1, kSigmoidGating = 2;

// True for a model with latent vectors whose keys' and values' parts of kv_b_proj are two tensors,
// "k_b_proj" and "v_b_proj" of NamedTensors.
bool SplitsLatent(const GgufFile& file);

// All architectures that are known.
std::vector<Architecture> Architectures();

// By general.architecture; with experts, of a model that has them. Unimplemented names the one that
// is not known and lists those that are.
absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file);

// Elements of a head: the key's, or else the embedding's by the number of heads; 0 where neither is
// told.
int64_t HeadDim(const GgufFile& file, const Architecture& architecture);

// Heads of values that are stored in turns of their groups, which share a key head: head j of group
// g, which Hugging Face's files have as head g * per_group + j, is stored as head j * groups + g.
struct TiledHeads {
  int64_t groups = 0, per_group = 0;  // 0: heads are in Hugging Face's order
  int64_t size = 0;                   // rows, or columns, of a head
  int64_t begin = 0;                  // the first head's first row
  bool are_columns = false;

  // Returns where the row, or column, `i` of Hugging Face's order is stored.
  int64_t Stored(int64_t i) const {
    if (groups == 0 || i < begin) return i;
    const int64_t head = (i - begin) / size, in_head = (i - begin) % size;
    return begin + (head % per_group * groups + head / per_group) * size + in_head;
  }
};

// A tensor by the name that Hugging Face's files give it.
struct NamedTensor {
  std::string name;
  const TensorType* type;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
  int64_t interleaved_head = 0;  // rows of a head with interleaved pairs; 0: as Hugging Face's
  TiledHeads tiled;
  // Rows of a head whose matrix is stored by columns, one head after the other; 0: by rows.
  int64_t turned_head = 0;
  bool is_rate = false;  // holds -e^x, where Hugging Face's files have x
};

// All tensors but those that are parts of the configuration (rope_freqs and the like). Experts that
// are stored as one tensor come one by one. Names that are not known stay as they are.
absl::StatusOr<std::vector<NamedTensor>> NamedTensors(const GgufFile& file);

}  // namespace continuo::gguf
