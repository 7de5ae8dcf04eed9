// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/model/description/config.h"
#include "services/worker/model/load/load_options.h"
#include "services/worker/model/load/load_plan.h"

namespace continuo::worker {

// The tensors of one stored type.
struct StoredFacts {
  std::string type;  // "BF16", "Q4_K"
  int64_t tensors = 0, bytes = 0;
};

struct TokenFacts {
  int32_t id = 0;
  std::string text;
};

// A model's text, where its files could be read.
struct TextFacts {
  std::string tokenizer_source;  // "tokenizer.json", "GGUF metadata"
  std::string tokenizer_kind;    // "byte-level BPE"
  int64_t num_tokens = 0;
  bool has_chat_template = false;
  std::string tool_format;
  std::vector<TokenFacts> end_tokens;
};

// What an embedding model's vectors are made of.
struct EmbeddingFacts {
  int dimensions = 0;     // of a vector that is not cut
  int dense_modules = 0;  // between the pooled state and the vector
  bool normalises = false;
  std::vector<std::string> prompts;  // their names
};

// What a model's scores of pairs are made of.
struct ScoreFacts {
  bool has_head = false;  // of scores; else the logits of tokens
};

// Everything that a start with these options would load, as far as headers, configuration and
// tokenizer tell it. Parts that cannot be read are absent, and `problems` says why.
struct ModelFacts {
  std::string name, path;
  std::string container;  // "safetensors", "GGUF"; empty where there are no weights
  std::optional<model::ModelConfig> config;
  int64_t num_parameters = 0;
  std::vector<StoredFacts> stored;  // by bytes, the most first
  std::optional<TextFacts> text;
  std::optional<EmbeddingFacts> embedding;  // where the model makes embeddings; the caller sets it
  std::optional<ScoreFacts> score;          // where it makes scores; likewise
  // Types, memory and the device, where the worker would load the model.
  std::optional<model::LoadEstimate> estimate;
  uint64_t available_bytes = 0;  // of the container; 0: not asked, on CUDA devices
  int num_blocks = 0;            // KV blocks of a start in that memory; 0: not decided here
  int block_size = 0;
  // Each is the status with which a start would end; the first is the one that it would tell.
  std::vector<absl::Status> problems;
  std::vector<std::string> warnings;

  bool would_run() const { return problems.empty(); }
};

// Reads the files' headers and texts, but no weights, and computes nothing. `options.source.dir`
// is a folder or a GGUF file; `tool_format` is the flag. Memory of the container is not looked at.
ModelFacts ReadModelFacts(const model::LoadOptions& options, const std::string& tool_format);

// For people: a few lines for each subject.
std::string FactsText(const ModelFacts& facts);
// The same as a JSON object, for programs.
std::string FactsJson(const ModelFacts& facts);

}  // namespace continuo::worker
