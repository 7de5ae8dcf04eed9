// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/worker/describe/mechanisms.h"
#include "services/worker/describe/model_facts.h"

namespace continuo::worker {
namespace {

constexpr size_t kColumn = 14;

void Line(std::string_view subject, const std::string& text, std::string& out) {
  std::string left(subject);
  left.resize(std::max(kColumn, left.size() + 1), ' ');
  absl::StrAppend(&out, left, text, "\n");
}

// "1.21 GiB": three digits are enough for people.
std::string Size(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(kUnits)) size /= 1024, ++unit;
  return absl::StrFormat(unit == 0 ? "%.0f %s" : "%.3g %s", size, kUnits[unit]);
}
std::string Size(int64_t bytes) { return Size(static_cast<uint64_t>(bytes)); }

std::string Parameters(int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1000000000) return absl::StrFormat("%.3g billion parameters", number / 1e9);
  if (count >= 1000000) return absl::StrFormat("%.3g million parameters", number / 1e6);
  return absl::StrCat(count, " parameters");
}

void AddConfig(const ModelFacts& facts, std::string& out) {
  const model::ModelConfig& c = *facts.config;
  Line("family", absl::StrCat(c.architecture, ", ", Parameters(facts.num_parameters)), out);
  Line("",
       absl::StrCat(c.num_layers, " layers of ", c.hidden_size, ", ", c.num_heads, " heads of ",
                    c.head_dim, ", vocabulary of ", c.vocab_size, ", context of ", c.context_length,
                    " tokens"),
       out);
  std::string_view subject = "mechanisms";
  for (const std::string& mechanism : MechanismsOf(c)) {
    Line(subject, mechanism, out);
    subject = "";
  }
}

void AddText(const TextFacts& text, std::string& out) {
  Line("tokenizer",
       absl::StrCat(text.tokenizer_kind, " of ", text.num_tokens, " tokens, from ",
                    text.tokenizer_source),
       out);
  Line("chat template",
       text.has_chat_template ? absl::StrCat("there is one; calls of tools: ", text.tool_format)
                              : "none: the model continues texts, but answers no conversations",
       out);
  Line("end tokens",
       absl::StrJoin(text.end_tokens, ", ",
                     [](std::string* s, const TokenFacts& token) {
                       absl::StrAppend(s, token.id, token.text.empty() ? "" : " ", token.text);
                     }),
       out);
}

void AddEmbedding(const EmbeddingFacts& embedding, std::string& out) {
  Line("embeddings",
       absl::StrCat(embedding.dimensions, " values, of the last token",
                    embedding.dense_modules > 0
                        ? absl::StrCat(" through ", embedding.dense_modules, " dense modules")
                        : "",
                    embedding.normalises ? ", scaled to length 1" : ""),
       out);
  if (!embedding.prompts.empty()) {
    Line("", absl::StrCat("prompts: ", absl::StrJoin(embedding.prompts, ", ")), out);
  }
}

void AddMemory(const ModelFacts& facts, std::string& out) {
  const model::LoadEstimate& e = *facts.estimate;
  Line("computed in",
       absl::StrCat("weights ", kernels::NameOf(e.types.weights), ", activations ",
                    model::TypeName(e.types.activations), ", keys and values ",
                    model::TypeName(e.types.kv), ", on ", e.backend_name),
       out);
  for (const std::string& kept : e.kept) Line("", kept, out);
  Line("memory",
       absl::StrCat(Size(e.weight_bytes), " weights, ", Size(e.scratch_bytes),
                    " activations of the largest step"),
       out);
  Line("",
       absl::StrCat(Size(e.bytes_per_block / facts.block_size), " keys and values a token, ",
                    Size(e.bytes_per_block * e.min_blocks), " for a context of ",
                    e.config.context_length, " tokens"),
       out);
  if (e.bytes_per_state_slot > 0) {
    Line("", absl::StrCat(Size(e.bytes_per_state_slot), " recurrent state of a sequence"), out);
  }
  if (facts.num_blocks > 0) {
    const int64_t blocks = facts.num_blocks;
    Line(
        "",
        absl::StrCat("of ", Size(facts.available_bytes), " that are free here, the KV cache takes ",
                     Size(e.bytes_per_block * blocks), ": ", blocks * facts.block_size, " tokens"),
        out);
  }
}

}  // namespace

std::string FactsText(const ModelFacts& facts) {
  std::string out;
  Line("model", facts.name, out);
  Line("path", facts.path, out);
  if (facts.config.has_value()) AddConfig(facts, out);
  if (!facts.container.empty()) {
    Line("stored as",
         absl::StrCat(facts.container, ": ",
                      absl::StrJoin(facts.stored, ", ",
                                    [](std::string* s, const StoredFacts& type) {
                                      absl::StrAppend(
                                          s, type.type, " (", type.tensors,
                                          type.tensors == 1 ? " tensor, " : " tensors, ",
                                          Size(type.bytes), ")");
                                    })),
         out);
  }
  if (facts.text.has_value()) AddText(*facts.text, out);
  if (facts.embedding.has_value()) AddEmbedding(*facts.embedding, out);
  if (facts.score.has_value()) {
    Line("scores", facts.score->has_head ? "of the head" : "of the logits of tokens", out);
  }
  if (facts.estimate.has_value()) AddMemory(facts, out);
  for (const std::string& warning : facts.warnings) Line("warning", warning, out);
  for (const absl::Status& problem : facts.problems) {
    Line("problem", std::string(problem.message()), out);
  }
  Line("would run", facts.would_run() ? "yes" : "no", out);
  return out;
}

}  // namespace continuo::worker
