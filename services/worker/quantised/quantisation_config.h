// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "services/worker/quantised/module_patterns.h"

namespace continuo::quantised {

// The values of quant_method that are read.
enum class Method : uint8_t { kNone, kFp8, kCompressedTensors, kAwq, kGptq, kMxfp4 };

// How the matrix of a module is stored.
enum class Format : uint8_t {
  kFloat8,     // elements F8_E4M3
  kInt8,       // elements I8
  kPackedInt,  // integers of `bits` bits in words of 32 bits, along a row
  kNvfp4,      // pairs of FP4 numbers, scales F8_E4M3
  kMxfp4,      // pairs of FP4 numbers, scales that are powers of two
  kAwq,        // AWQ's GEMM version
  kGptq,
};

// The part of a matrix that shares a scale.
enum class Sharing : uint8_t {
  kByShape,  // tensor or channel, as the scales' shape says
  kTensor,
  kChannel,  // a row
  kGroup,    // `group_size` elements of a row, 0: all of them
  kBlock,    // block_rows × block_columns elements
};

struct Scheme {
  Format format = Format::kFloat8;
  int bits = 8;
  bool symmetric = true;  // no zero points are stored
  Sharing sharing = Sharing::kByShape;
  int64_t group_size = 0;
  int64_t block_rows = 0, block_columns = 0;
  bool zeros_less_one = false;  // GPTQ's first version
};

// The quantisation of a checkpoint, as its config.json describes it. Immutable.
struct QuantisationConfig {
  struct Group {
    ModulePatterns targets;
    Scheme scheme;
  };

  Method method = Method::kNone;
  std::vector<Group> groups;  // of compressed-tensors; elsewhere one, for all modules
  ModulePatterns ignored;
  // For the log: what the files say and the worker does not do, as sentences.
  std::vector<std::string> notes;
};

// Reads quantization_config (or compression_config) of a whole config.json, or of its text_config.
// Unimplemented names a method, a format or a variant that is not taken; InvalidArgument names a
// field, its value and the limit. `config` may say anything.
absl::StatusOr<QuantisationConfig> ReadQuantisationConfig(const nlohmann::json& config);

// The scheme of a module whose tensors are quantised. InvalidArgument, beginning with `tensor`,
// where the configuration says that it is not.
absl::StatusOr<Scheme> SchemeOf(const QuantisationConfig& config, std::string_view module,
                                const std::string& tensor);

}  // namespace continuo::quantised
