// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace continuo::testing {

// A tensor with bytes of its own, for files that a test writes.
struct OwnTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using OwnTensors = std::map<std::string, OwnTensor>;  // by name

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns the bytes of a safetensors file of these tensors.
inline std::string SafetensorsOf(const OwnTensors& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(text.size() >> (8 * i));
  return file + text + data;
}

// Writes config.json and model.safetensors into a folder, which is made if it is not there.
inline void WriteModelFolder(const std::filesystem::path& dir, const nlohmann::json& config,
                             const OwnTensors& tensors) {
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "model.safetensors", std::ios::binary) << SafetensorsOf(tensors);
  std::ofstream(dir / "config.json") << config;
}

}  // namespace continuo::testing
