// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace continuo::model {

struct RandomModelOptions {
  std::string config_json;  // the text of a config.json of a known architecture
  std::string out_dir;      // made where it does not exist; files in it are overwritten
  uint64_t seed = 0;
  std::string dtype = "bf16";              // bf16, fp16 or fp32: as stored
  int64_t shard_bytes = int64_t{4} << 30;  // more weights than this are divided into shards
  bool mtp = false;  // the module for multi-token prediction, too; of families that have one
  std::string tokenizer_dir;  // whose tokenizer files are copied; empty: a byte-level one is made
};

// Writes a Hugging Face folder with random weights: config.json, safetensors, tokenizer. The same
// options give the same bytes on every machine (integer generator, one rounding per weight).
// Weights are uniform with a standard deviation of 1/√in, 2/√hidden in embedding and head, so that
// activations stay near 1 and logits near 2; gains are near 1. Streams: needs little memory.
absl::Status WriteRandomModel(const RandomModelOptions& options);

// A tokenizer.json for any vocabulary: the bytes, which take the lowest ids that are free,
// "<|special_N|>" for each id in `special_ids`, and words " wN" for the rest. With fewer than 256
// free ids some bytes cannot be encoded.
std::string ByteLevelTokenizerJson(int vocab_size, const std::vector<int32_t>& special_ids);

// The config.json of a public shape: "qwen3-0.6b", "llama-3.2-1b", "llama-3.1-8b",
// "qwen3-30b-a3b", "mixtral-8x7b", "gemma-2-2b", "phi-3-mini", "lfm2-350m", "qwen3.5-0.8b",
// "bge-small", "modernbert-base".
absl::StatusOr<std::string> ConfigOfShape(const std::string& shape);

}  // namespace continuo::model
