// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/base/random.h"
#include "services/worker/model/checkpoint/weights.h"
#include "services/worker/model/description/config.h"

namespace continuo::testing {

struct TinyAdapterOptions {
  int rank = 8;
  double alpha = 16;
  uint64_t seed = 1;
  std::string dtype = "F32";  // F32, F16, BF16
  // Ends of the names of modules. Those that the model does not have are left out.
  std::vector<std::string> targets = {"q_proj",    "k_proj",   "v_proj",
                                      "o_proj",    "up_proj",  "gate_proj",
                                      "down_proj", "qkv_proj", "gate_up_proj"};
  nlohmann::json more = nlohmann::json::object();  // fields of adapter_config.json
};

// The bytes of a safetensors file of the given header and data.
inline std::string SafetensorsBytes(const nlohmann::ordered_json& header, std::string_view data) {
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(text.size() >> (8 * i)));
  return file + text + std::string(data);
}

// Writes an adapter with random matrices for the model of a folder, as PEFT does. Its effect is of
// the order of the model's own weights.
inline void WriteTinyAdapter(const std::string& model_dir, const std::filesystem::path& dir,
                             const TinyAdapterOptions& options = {}) {
  const auto config = model::ReadModelConfig(model_dir);
  CONTINUO_CHECK(config.ok());
  model::ModelWeights places;
  nlohmann::ordered_json header;
  std::string data;
  SplitMix64 random(options.seed);
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns, double size) {
    const size_t begin = data.size();
    for (int64_t i = 0; i < rows * columns; ++i) {
      const double unit = static_cast<double>(random.Next() >> 40) * 0x1p-23 - 1;
      const auto value = static_cast<float>(unit * size);
      if (options.dtype == "F32") {
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
      } else {
        const uint16_t bits =
            options.dtype == "BF16" ? kernels::ToBF16(value) : kernels::ToF16(value);
        data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
      }
    }
    header["base_model.model." + name] = {{"dtype", options.dtype},
                                          {"shape", {rows, columns}},
                                          {"data_offsets", {begin, data.size()}}};
  };
  std::set<std::string> names;
  for (const model::WeightSpec& spec : model::ListWeights(*config, places)) {
    const std::string module = spec.name.substr(0, spec.name.rfind('.'));
    const bool is_target = std::ranges::any_of(
        options.targets, [&](const std::string& end) { return module.ends_with("." + end); });
    if (spec.matrix == nullptr || !is_target || !names.insert(module).second) continue;
    add(module + ".lora_A.weight", options.rank, spec.shape[1], 0.5);
    add(module + ".lora_B.weight", spec.shape[0], options.rank, 0.5 / options.rank);
  }
  CONTINUO_CHECK(!names.empty());
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "adapter_model.safetensors", std::ios::binary)
      << SafetensorsBytes(header, data);
  nlohmann::json json = {{"peft_type", "LORA"},
                         {"task_type", "CAUSAL_LM"},
                         {"r", options.rank},
                         {"lora_alpha", options.alpha},
                         {"target_modules", options.targets},
                         {"bias", "none"},
                         {"inference_mode", true},
                         {"lora_dropout", 0.1}};
  json.update(options.more);
  std::ofstream(dir / "adapter_config.json") << json;
}

}  // namespace continuo::testing
