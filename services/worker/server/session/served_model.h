// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/worker/embedding/embedding_head.h"
#include "services/worker/embedding/score_head.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/constraint/thought_marks.h"
#include "services/worker/server/pairs/pair_template.h"
#include "services/worker/server/session/fill_in_middle.h"
#include "services/worker/text/bundle/tokenizer_bundle.h"
#include "services/worker/text/calls/call_grammar.h"
#include "services/worker/text/grammar/grammar_compiler.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {

// The defaults of generation_config.json; unset fields take those of the proto.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint32_t> top_k;
};

// The model as the server describes it to clients and checks their requests against it. Filled in
// once by main (FinishServedModel last), then immutable.
struct ServedModel {
  std::string name;
  std::string architecture;
  std::string worker;  // name of this worker, for people
  int max_context_tokens = 0;
  int vocab_size = 0;  // ids of the model and the tokenizer are below this
  uint64_t num_parameters = 0;
  std::string weight_format;
  std::string fingerprint, tokenizer_fingerprint;
  // Of a LoRA adapter, which is served as a model of its own: the name of the model that it adapts,
  // the adapter's digest, its AdapterLease::id and what keeps it in memory.
  std::string parent;
  std::string adapter_digest;
  int32_t adapter = model::kNoAdapter;
  std::shared_ptr<const void> adapter_lease;
  SamplingDefaults defaults;
  std::vector<int32_t> eos_ids;  // ascending
  const text::TextModel* text = nullptr;
  // Special tokens that a conversation's content holds are such, and not text.
  bool parse_special_in_content = false;
  bool allow_request_chat_template = false;  // requests may bring a template of their own
  std::optional<FillInMiddle> fill_in_middle;

  // Makes vectors of states, and scores, which have a template of pairs, too, unless the tokenizer
  // joins them. Both null: the model
  // generates; else it has what is not null and nothing else.
  std::shared_ptr<const embedding::EmbeddingHead> embedding;
  std::shared_ptr<const embedding::ScoreHead> score;
  std::shared_ptr<const PairTemplate> pairs;

  bool generates() const { return embedding == nullptr && score == nullptr; }

  std::string tokenizer_info;                       // a JSON object (TextModel::TokenizerInfo)
  std::shared_ptr<text::TokenizerBundler> bundler;  // null: there are no files

  // Compiles the grammars that answers must match; thread-safe.
  std::shared_ptr<text::GrammarCompiler> grammars;
  std::shared_ptr<const ThoughtMarks> thought_marks;  // null: the model has no thoughts
  std::vector<text::SpecialToken> special_tokens;
  // Tells why calls cannot be constrained; OK where they can.
  absl::Status call_grammar_status;

  // The most bytes that one token can have as text, and as TokenLogprob.token or special_token.
  size_t max_text_bytes_per_token = 0;
  size_t max_token_bytes = 0;
};

// Sorts the end-of-sequence ids, reads the longest token, the special ones, those of
// fill-in-the-middle and those of thoughts off the vocabulary, and makes the compiler of grammars.
void FinishServedModel(ServedModel& model);

}  // namespace continuo::server
