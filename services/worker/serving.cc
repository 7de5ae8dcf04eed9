// SPDX-License-Identifier: Apache-2.0
#include "services/worker/serving.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/base/status_macros.h"
#include "services/worker/engine/draft/mtp_drafter.h"
#include "services/worker/engine/draft/prompt_lookup.h"
#include "services/worker/model/checkpoint/fingerprint.h"

namespace continuo::worker {

engine::EngineOptions MakeEngineOptions(const WorkerConfig& config, const model::LoadedModel& model,
                                        const Clock* clock) {
  engine::EngineOptions options;
  options.num_blocks = model.num_blocks;
  options.block_size = model.block_size;
  options.num_state_slots = model.num_state_slots;
  options.vocab_size = model.config.vocab_size;
  options.reads_states = config.load.reads_states;
  options.whole_prompts = model.config.encoder.is_encoder;
  options.max_batch_tokens = config.load.max_batch_tokens;
  options.max_prefill_chunk = config.max_prefill_chunk;
  options.max_running = config.max_running;
  options.max_queued_tokens = config.max_queued_tokens;
  if (config.speculation == "lookup") options.drafter = std::make_shared<engine::PromptLookup>();
  if (model.has_mtp) {
    options.drafter = std::make_shared<engine::MtpDrafter>(
        model.block_size, model.config.vocab_size, model.executor.get(), clock);
  }
  options.max_drafts = config.max_draft_tokens;
  options.always_drafts = config.always_draft;
  return options;
}

namespace {

// The id of a token as the vocabulary writes it.
absl::StatusOr<int32_t> FindToken(const text::TextModel& text, std::string_view name) {
  for (int32_t id = 0; id < text.vocab_size(); ++id) {
    if (text.TokenName(id) == name) return id;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--task=score: the tokenizer has no token \"", std::string(name),
                   "\"; modules.json may name others with LogitScore"));
}

// Where texts are to be in lower case, the tokenizer has to write them so, too: that is left to it.
absl::Status CheckCase(bool lowercases, const text::TextModel& text) {
  if (!lowercases) return absl::OkStatus();
  constexpr std::string_view kUpper = "An ÉTUDE", kLower = "an étude";
  ASSIGN_OR_RETURN(const std::vector<int32_t> upper, text.Encode(kUpper, false));
  ASSIGN_OR_RETURN(const std::vector<int32_t> lower, text.Encode(kLower, false));
  if (upper == lower) return absl::OkStatus();
  return absl::UnimplementedError(
      "sentence_bert_config.json: do_lower_case is true, and the tokenizer does not write texts in "
      "lower case");
}

// An encoder reads pairs as the tokenizer joins them.
absl::Status CheckPairs(const embedding::ScoreOptions& options, const model::ModelConfig& model,
                        const text::TextModel& text) {
  if (!options.instruction.empty()) {
    return absl::UnimplementedError(
        "config_sentence_transformers.json: the default prompt is an instruction, and an encoder's "
        "pairs have none");
  }
  ASSIGN_OR_RETURN(const text::EncodedPair pair, text.EncodePair("a", "b", false));
  const int num_types = model.encoder.num_token_types;
  const bool fits = num_types < 2 || std::ranges::all_of(pair.types, [&](int32_t type) {
                      return type >= 0 && type < num_types;
                    });
  if (pair.second_begin < pair.second_end && fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fits ? "the tokenizer does not join two texts, so that there is no pair to score"
           : absl::StrCat("the tokenizer tells more parts of a pair apart than type_vocab_size, ",
                          num_types));
}

}  // namespace

absl::StatusOr<Heads> LoadHeads(const WorkerConfig& config, const model::ModelConfig& model,
                                const text::TextModel& text) {
  Heads heads;
  const std::string& path = config.load.source.dir;
  if (config.embedding.has_value()) {
    RETURN_IF_ERROR(CheckCase(config.embedding->lowercases, text));
    ASSIGN_OR_RETURN(heads.embedding,
                     embedding::EmbeddingHead::Load(path, *config.embedding, model.hidden_size));
  }
  if (!config.score.has_value()) return heads;
  RETURN_IF_ERROR(CheckCase(config.score->lowercases, text));
  std::optional<embedding::ScoreTokens> tokens = config.score->tokens;
  if (!tokens.has_value() && !config.score->has_head) {
    tokens.emplace();
    ASSIGN_OR_RETURN(tokens->relevant, FindToken(text, "yes"));
    ASSIGN_OR_RETURN(tokens->irrelevant, FindToken(text, "no"));
  }
  ASSIGN_OR_RETURN(heads.score, embedding::ScoreHead::Load(path, tokens, model));
  if (model.encoder.is_encoder) {
    RETURN_IF_ERROR(CheckPairs(*config.score, model, text));
    return heads;
  }
  ASSIGN_OR_RETURN(server::PairTemplate pairs,
                   server::PairTemplate::Find(text, model.architecture, config.score->instruction));
  heads.pairs = std::make_shared<const server::PairTemplate>(std::move(pairs));
  return heads;
}

server::ServedModel DescribeModel(const WorkerConfig& config, const model::LoadedModel& model,
                                  const text::TextModel* text, Heads heads,
                                  std::shared_ptr<text::TokenizerBundler> bundler) {
  server::ServedModel served;
  served.name = config.model_name;
  served.architecture = model.config.architecture;
  served.worker = config.worker_name;
  served.max_context_tokens = model.config.context_length;
  served.vocab_size = model.config.vocab_size;
  served.num_parameters = static_cast<uint64_t>(model.num_parameters);
  served.weight_format = model.weight_format;
  served.eos_ids = model.config.defaults.eos_token_ids;
  for (const int32_t id : text->EndIds(model.config.defaults.eos_token_ids)) {
    if (id < model.config.vocab_size) served.eos_ids.push_back(id);
  }
  served.text = text;
  served.embedding = std::move(heads.embedding);
  served.score = std::move(heads.score);
  served.pairs = std::move(heads.pairs);
  served.parse_special_in_content = config.parse_special_in_content;
  served.allow_request_chat_template = config.allow_request_chat_template;
  server::FinishServedModel(served);
  served.tokenizer_info = text->TokenizerInfo(served.eos_ids.empty() ? -1 : served.eos_ids.front());
  std::vector<std::string> text_parts = {absl::StrCat(text::kTextVersion), text->tokenizer_digest(),
                                         text->template_digest(),
                                         std::string(text::kGrammarLibrary)};
  if (config.parse_special_in_content) text_parts.push_back("parse_special_in_content");
  if (served.embedding != nullptr) text_parts.push_back(served.embedding->digest());
  if (served.score != nullptr) {
    text_parts.push_back(served.score->digest());
    if (served.pairs != nullptr) text_parts.push_back(served.pairs->summary());
  }
  if (config.tool_format != "auto") text_parts.push_back("tool_format=" + config.tool_format);
  // An empty fingerprint equals nothing, not even itself.
  if (model.is_exact) {
    model::ModelConfig config = model.config;
    config.defaults.eos_token_ids = served.eos_ids;
    model::FingerprintParts parts = model.fingerprint;
    parts.config = model::ConfigSummary(config);
    served.fingerprint = model::MakeFingerprint(parts, text_parts);
  }
  served.bundler = std::move(bundler);
  served.tokenizer_fingerprint = text->tokenizer_digest();
  const model::GenerationDefaults& d = model.config.defaults;
  served.defaults.temperature = d.temperature;
  served.defaults.top_p = d.top_p;
  served.defaults.min_p = d.min_p;
  served.defaults.repetition_penalty = d.repetition_penalty;
  if (d.top_k.has_value()) served.defaults.top_k = static_cast<uint32_t>(*d.top_k);
  return served;
}

server::ServedModel DescribeAdapter(const server::ServedModel& base, const std::string& name,
                                    const model::Digest128& digest) {
  server::ServedModel served = base;
  served.name = name;
  served.parent = base.name;
  served.adapter_digest = model::ToHex(digest);
  if (!base.fingerprint.empty()) {
    served.fingerprint = model::ToHex(
        model::DigestOf(absl::StrCat("adapter ", base.fingerprint, " ", served.adapter_digest)));
  }
  return served;
}

server::ServedModel DescribeAdapter(const server::ServedModel& base,
                                    const model::LoadedAdapter& adapter) {
  server::ServedModel served =
      DescribeAdapter(base, adapter.name, adapter.lease->adapter->digest());
  served.adapter = adapter.lease->id;
  served.adapter_lease = adapter.lease;
  return served;
}

std::vector<server::ServedModel> DescribeAdapters(
    const server::ServedModel& base, const std::vector<model::LoadedAdapter>& adapters) {
  std::vector<server::ServedModel> all;
  for (const model::LoadedAdapter& adapter : adapters) {
    all.push_back(DescribeAdapter(base, adapter));
  }
  return all;
}

std::string ShowTokens(const std::vector<int32_t>& ids, const text::TextModel& text) {
  return absl::StrJoin(ids, ", ", [&text](std::string* out, int32_t id) {
    const std::string bytes(text.TokenBytesKeepSpecial(id));
    absl::StrAppend(out, id, bytes.empty() ? "" : " ", absl::StripAsciiWhitespace(bytes));
  });
}

}  // namespace continuo::worker
