// SPDX-License-Identifier: Apache-2.0
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/worker/model/network/decoder.h"
#include "services/worker/model/network/model.h"

namespace continuo::model {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Model>> (*)(const ModelDependencies& parts);

constexpr std::pair<std::string_view, Factory> kArchitectures[] = {
    {"LlamaForCausalLM", MakeDecoder},    {"MistralForCausalLM", MakeDecoder},
    {"Qwen2ForCausalLM", MakeDecoder},    {"Qwen3ForCausalLM", MakeDecoder},
    {"Qwen3MoeForCausalLM", MakeDecoder}, {"MixtralForCausalLM", MakeDecoder},
    {"Gemma2ForCausalLM", MakeDecoder},   {"Phi3ForCausalLM", MakeDecoder},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelDependencies& parts) {
  for (const auto& [name, factory] : kArchitectures) {
    if (name == parts.config.architecture) return factory(parts);
  }
  return absl::UnimplementedError(
      absl::StrCat("architecture \"", parts.config.architecture, "\" is not known"));
}

}  // namespace continuo::model
