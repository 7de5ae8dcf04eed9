// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {

// A pair as a model of scores reads it.
struct RenderedPair {
  text::RenderedChat chat;
  // The document's bytes of chat.text, as the template shows it: perhaps without the spaces around
  // it. Equal where the document is empty or is_cuttable is false.
  size_t document_begin = 0, document_end = 0;
  // False where the template shows the document changed, so that none of the text is known as it.
  bool is_cuttable = true;
};

// Writes a query, a document and an instruction as a model of scores was trained to read them.
// Immutable and thread-safe. `text` outlives it.
class PairTemplate {
 public:
  // Takes the model's chat template where it shows messages of the roles "query" and "document",
  // with the instruction as one of "system", as sentence-transformers renders pairs; else the text
  // of Qwen3-Reranker's model card for a model of that family. FailedPrecondition where neither
  // fits, or where the template does not show `instruction`, the default of requests that have
  // none; empty: that of the template.
  static absl::StatusOr<PairTemplate> Find(const text::TextModel& text,
                                           std::string_view architecture, std::string instruction);

  // INVALID_ARGUMENT, of the field "instruction", where the template shows none.
  absl::StatusOr<RenderedPair> Render(const std::string& query, const std::string& document,
                                      const std::optional<std::string>& instruction) const;

  // Where the text comes from, for people.
  std::string_view source() const {
    return is_built_in() ? "the model card of Qwen3-Reranker" : "the chat template";
  }
  // What the text depends on beside the chat template. Part of the worker's fingerprint.
  std::string summary() const;

 private:
  enum class Part { kQuery, kDocument, kInstruction, kOther };
  // How a chat template renders the messages of a pair: whose contents the spans are, in order.
  using Shape = std::vector<Part>;

  PairTemplate(const text::TextModel* text, std::string instruction)
      : text_(text), instruction_(std::move(instruction)) {}
  bool is_built_in() const { return !plain_.has_value() && !instructed_.has_value(); }
  absl::StatusOr<text::RenderedChat> RenderChat(const std::string& query,
                                                const std::string& document,
                                                const std::string& instruction) const;
  // Sets the bytes of the document.
  static void FindDocument(const Shape& shape, std::string_view query, std::string_view document,
                           std::string_view instruction, RenderedPair& pair);
  // Nothing where the chat template does not show all three once, and as they are.
  std::optional<Shape> Probe(const std::string& instruction) const;

  const text::TextModel* text_;
  std::string instruction_;  // of a request without one; empty: none
  // Both unset: the built-in text.
  std::optional<Shape> plain_, instructed_;
};

}  // namespace continuo::server
