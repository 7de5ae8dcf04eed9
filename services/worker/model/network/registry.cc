// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/worker/model/network/llama.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Model>> (*)(const ModelParts& parts);

constexpr std::pair<std::string_view, Factory> kArchitectures[] = {
    {"LlamaForCausalLM", MakeLlama},    {"MistralForCausalLM", MakeLlama},
    {"Qwen2ForCausalLM", MakeLlama},    {"Qwen3ForCausalLM", MakeLlama},
    {"Qwen3MoeForCausalLM", MakeLlama}, {"MixtralForCausalLM", MakeLlama},
    {"Gemma2ForCausalLM", MakeLlama},   {"Phi3ForCausalLM", MakeLlama},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelParts& parts) {
  for (const auto& [name, factory] : kArchitectures) {
    if (name == parts.config.architecture) return factory(parts);
  }
  return absl::UnimplementedError(
      absl::StrCat("architecture \"", parts.config.architecture, "\" is not known"));
}

}  // namespace continuo::model
