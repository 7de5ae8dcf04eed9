// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::embedding {

// A linear layer on one vector ends with one. kGelu is the GELU of the error function, kGeluTanh is
// its approximation.
enum class Activation : uint8_t { kIdentity, kTanh, kGelu, kGeluTanh };

// Which of a text's states make its vector: that behind the last token or behind the first one
// (BERT's CLS), or the mean of all.
enum class Pooling : uint8_t { kLast, kFirst, kMean };

// A linear layer on the pooled vector: activation(W x + b).
struct DenseModule {
  std::string folder;  // below the model's, with model.safetensors
  int in_features = 0, out_features = 0;
  bool has_bias = true;
  Activation activation = Activation::kTanh;
};

// A text that goes in front of an input.
struct Prompt {
  std::string name, text;
};

// The tokens whose logits behind a prompt say whether a document is relevant.
struct ScoreTokens {
  int32_t relevant = 0;
  std::optional<int32_t> irrelevant;  // without it the one logit is the score's

  friend bool operator==(const ScoreTokens&, const ScoreTokens&) = default;
};

// What an embedding model does with a text besides running its layers, or a model of scores with a
// pair of texts.
struct SentenceModules {
  int dimension = 0;  // of the model's states; 0: the files do not say
  Pooling pooling = Pooling::kLast;
  std::vector<DenseModule> dense;  // in order, behind the pooling
  bool normalises = false;         // vectors are scaled to length 1 at the end
  bool lowercases = false;         // texts are in lower case before they are encoded
  int max_tokens = 0;              // of an input, special tokens included; 0: the context
  std::vector<Prompt> prompts;     // ascending by name
  std::string default_prompt;      // a name of prompts; empty: none
  // Of a model of scores, whose prompts are instructions and which pools nothing: its LogitScore,
  // or that its head gives scores.
  std::optional<ScoreTokens> score;
  bool has_score_head = false;

  bool scores() const { return score.has_value() || has_score_head; }
};

// Reads what sentence-transformers writes beside a model: modules.json, the config.json of each
// module, sentence_bert_config.json and config_sentence_transformers.json
// (https://sbert.net/docs/sentence_transformer/usage/custom_models.html). No value where the folder
// has no modules.json. InvalidArgument names file, field and what is allowed; Unimplemented a
// module, a pooling or an activation that is not known. A model of scores has LogitScore in place
// of a pooling, or nothing behind its Transformer.
absl::StatusOr<std::optional<SentenceModules>> ReadSentenceModules(const std::string& dir);

// The parts of the above, for files that may say anything. `json` is modules.json: an array of
// objects with type and path.
struct ListedModule {
  std::string kind;  // "Pooling": the last part of the type
  std::string path;  // a folder below the model's, perhaps empty
};
absl::StatusOr<std::vector<ListedModule>> ParseModules(std::string_view json);
// A pooling's config.json; sets `dimension` and `pooling`.
absl::Status ParsePooling(std::string_view name, std::string_view json, SentenceModules* modules);
absl::StatusOr<DenseModule> ParseDense(std::string_view name, std::string_view json);
// A LogitScore's config.json. InvalidArgument names the field that is missing, wrong or not known.
absl::StatusOr<ScoreTokens> ParseLogitScore(std::string_view name, std::string_view json);
// sentence_bert_config.json; sets max_tokens. Its task and output must be those of what `modules`
// makes: vectors, or scores of tokens or of a head.
absl::Status ParseTransformer(std::string_view json, SentenceModules* modules);
// config_sentence_transformers.json; sets the prompts.
absl::Status ParsePrompts(std::string_view json, SentenceModules* modules);

}  // namespace continuo::embedding
