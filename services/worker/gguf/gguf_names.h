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
};

// The values of expert_gating_func that are known.
inline constexpr int64_t kSoftmaxGating = 1, kSigmoidGating = 2;

// All architectures that are known.
std::vector<Architecture> Architectures();

// By general.architecture; with experts, of a model that has them. Unimplemented names the one that
// is not known and lists those that are.
absl::StatusOr<const Architecture*> FindArchitecture(const GgufFile& file);

// Elements of a head: the key's, or else the embedding's by the number of heads; 0 where neither is
// told.
int64_t HeadDim(const GgufFile& file, const Architecture& architecture);

// A tensor by the name that Hugging Face's files give it.
struct NamedTensor {
  std::string name;
  const TensorType* type;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;
  int64_t interleaved_head = 0;  // rows of a head with interleaved pairs; 0: as Hugging Face's
};

// All tensors but those that are parts of the configuration (rope_freqs and the like). Experts that
// are stored as one tensor come one by one. Names that are not known stay as they are.
absl::StatusOr<std::vector<NamedTensor>> NamedTensors(const GgufFile& file);

}  // namespace continuo::gguf
