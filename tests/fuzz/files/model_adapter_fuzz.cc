// SPDX-License-Identifier: Apache-2.0
// The files of a LoRA adapter: two bytes of the length of adapter_config.json, the text itself,
// then adapter_model.safetensors. Any bytes give modules of the tensors in the file, or an error;
// against a tiny model they give an adapter whose matrices lie in its memory, or an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/model/adapter/adapter.h"
#include "services/worker/model/description/config.h"

namespace continuo::model {
namespace {

constexpr char kConfig[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8, "hidden_size": 4,
  "intermediate_size": 6, "num_hidden_layers": 1, "num_attention_heads": 2,
  "num_key_value_heads": 1, "max_position_embeddings": 8, "rms_norm_eps": 1e-5,
  "tie_word_embeddings": true, "eos_token_id": 1})";

const ModelConfig& TinyConfig() {
  static const ModelConfig config = [] {
    auto parsed = ParseModelConfig(kConfig, "");
    CONTINUO_CHECK(parsed.ok());
    return *std::move(parsed);
  }();
  return config;
}

void Run(std::string_view text, std::span<const uint8_t> file) {
  const auto config = AdapterConfig::Parse(text);
  if (!config.ok()) return;
  for (const char* name : {"model.layers.0.self_attn.q_proj", "layers.1.mlp.up_proj", "a"}) {
    const auto module = config->Find(name);
    CONTINUO_CHECK(!module.ok() || (module->rank >= 1 && module->rank <= kMaxAdapterRank));
  }
  const auto tensors = ParseSafetensors("fuzz", file);
  if (!tensors.ok()) return;
  const auto modules = PairTensors(*config, *tensors);
  if (!modules.ok()) return;
  for (const AdapterModule& module : *modules) {
    CONTINUO_CHECK(module.a.shape[0] == module.rank && module.b.shape[1] == module.rank);
  }
  const std::vector<Shard> shards = {MakeShard(TinyConfig(), 0, 2), MakeShard(TinyConfig(), 1, 2)};
  const auto adapter = Adapter::Make(*modules, TinyConfig(), shards);
  const auto bytes = Adapter::Bytes(*modules, TinyConfig(), shards);
  CONTINUO_CHECK(adapter.ok() == bytes.ok());
  if (!adapter.ok()) return;
  CONTINUO_CHECK((*adapter)->bytes() == *bytes);
  for (int rank = 0; rank < 2; ++rank) {
    for (const AdapterLayer& layer : (*adapter)->layers(rank)) {
      const int width = *std::ranges::max_element(layer.widths);
      CONTINUO_CHECK(width <= kMaxAdapterWidth);
      for (const AdapterLayer::Expansion& b : layer.b) {
        uint64_t sum = 0;
        const auto* const data = static_cast<const uint8_t*>(b.b.data);
        for (size_t i = 0; i < b.b.bytes(); ++i) sum += data[i];
        CONTINUO_CHECK(sum <= 255 * b.b.bytes());
        CONTINUO_CHECK(b.b.size() == 0 || b.first + b.b.rows() <= width);
      }
    }
  }
}

}  // namespace
}  // namespace continuo::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t length = std::min<size_t>(data[0] + 256u * data[1], size - 2);
  continuo::model::Run({reinterpret_cast<const char*>(data) + 2, length},
                       {data + 2 + length, size - 2 - length});
  return 0;
}
