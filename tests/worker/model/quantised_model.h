// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/testing/temp_folder.h"

namespace continuo::testing {

// Returns the formats of quantised safetensors that QuantisedModel writes: "fp8" in blocks of 16 x
// 16, "int8" by row, "packed" (compressed-tensors' int4 with zero points), "nvfp4", "awq", "gptq"
// and "gptq with g_idx", the last five in groups of 8.
std::vector<std::string> QuantisedFormats();

// Returns whether --weights=stored takes the format.
bool KeepsIntegers(std::string_view format);

struct QuantisedModelOptions {
  std::string format;  // one of QuantisedFormats()
  std::string family = "llama";
  int intermediate_size =
      88;  // a multiple of 128 keeps groups whole, so that --weights=stored takes them
  int context_length = 256;
  std::string plain;  // the name of a matrix that is not quantised, or ""
};

// A tiny model (tiny_model.h) whose layers' matrices are random codes, in a folder as the format
// stores it and in one with the values that the codes mean. Both have config.json and
// model.safetensors, and are deleted with the object.
class QuantisedModel {
 public:
  explicit QuantisedModel(const QuantisedModelOptions& options);

  std::string dir() const { return (root_.path() / "quantised").string(); }
  std::string values_dir() const { return (root_.path() / "values").string(); }

 private:
  const TempFolder root_;
};

}  // namespace continuo::testing
