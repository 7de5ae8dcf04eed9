// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace continuo::testing {

// The parameters of a tiny model. The defaults load in milliseconds; every size is odd enough that
// cuts among ranks are uneven.
struct TinyModelOptions {
  // "llama", "mistral" (window of 24 tokens), "qwen2" (biases), "qwen3" (query and key norms),
  // "mixtral" (2 of 5 experts), "qwen3_moe" (3 of 7 in every other layer), "gemma2" (caps, windows
  // of 24 tokens in every other layer), "phi3" (joined tensors, a part of each head rotated), or
  // the model_type of another family, with values of its fields that make a difference.
  std::string family = "llama";
  int vocab_size = 301;  // the 256 bytes, the end of sequence (id 300) and 44 words
  int hidden_size = 48;
  int intermediate_size = 88;
  int num_layers = 2;
  int num_heads = 6;
  int num_kv_heads = 2;
  int head_dim = 8;
  int context_length = 256;
  bool tied_embeddings = true;
  uint64_t seed = 1;
  bool mtp = false;            // a module for multi-token prediction, too
  std::string dtype = "fp32";  // fp32, bf16, fp16: as stored
  int64_t shard_bytes = int64_t{1} << 40;
  // Fields of config.json to add or replace: a JSON object.
  std::string extra_config = "{}";
};

// A Hugging Face folder (config.json, model.safetensors, byte-level tokenizer.json,
// tokenizer_config.json with a chat template) under the test's temporary folder, deleted with the
// object.
class TinyModel {
 public:
  explicit TinyModel(const TinyModelOptions& options = {});
  ~TinyModel();
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  const std::string& dir() const { return dir_; }
  // Writes or replaces a file of the folder.
  void Write(std::string_view file, std::string_view text) const;
  std::string Read(std::string_view file) const;

 private:
  std::string dir_;
};

}  // namespace continuo::testing
