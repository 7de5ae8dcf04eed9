// SPDX-License-Identifier: Apache-2.0
// config.json and generation_config.json of any bytes, divided at the first NUL, give a
// configuration within the limits or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/base/check.h"
#include "services/worker/model/checkpoint/fingerprint.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/network/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  const std::string_view generation =
      cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1);
  const auto config = continuo::model::ParseModelConfig(text.substr(0, cut), generation);
  if (!config.ok()) return 0;
  CONTINUO_CHECK(config->num_heads % config->num_kv_heads == 0);
  CONTINUO_CHECK(config->windows.size() == static_cast<size_t>(config->num_layers));
  CONTINUO_CHECK(config->layer_ropes.size() == config->windows.size());
  // Listing the tensors of many experts takes long.
  if (config->num_layers * (1 + config->experts.num_experts) <= 256) {
    CONTINUO_CHECK(continuo::model::NumParameters(*config) > 0);
  }
  for (const continuo::model::RopeConfig& rope : config->ropes) {
    for (const float frequency :
         continuo::model::RopeFrequencies(rope, config->rotary_dim, config->context_length)) {
      CONTINUO_CHECK(frequency >= 0 && frequency <= 1);
    }
  }
  for (const int32_t id : config->defaults.eos_token_ids) {
    CONTINUO_CHECK(id >= 0 && id < config->vocab_size);
  }
  continuo::model::ConfigSummary(*config);
  return 0;
}
