// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/pairs/pair_template.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::server {
namespace {

// The text of Qwen3-Reranker, which its model card gives (Qwen/Qwen3-Reranker-0.6B).
constexpr std::string_view kFamily = "Qwen3ForCausalLM";
constexpr std::string_view kBegin =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: ";
constexpr std::string_view kBeforeQuery = "\n<Query>: ", kBeforeDocument = "\n<Document>: ";
constexpr std::string_view kEnd = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

// What stands for the three texts where the chat template is tried.
constexpr char kAnyQuery[] = "Where does Mira live?", kAnyDocument[] = "Mira lives in Oslo.",
               kAnyInstruction[] = "Find the answer.";

void AddSpan(std::string_view content, text::RenderedChat& chat) {
  const size_t begin = chat.text.size();
  chat.text.append(content);
  chat.content.push_back({begin, chat.text.size()});
}

RenderedPair RenderBuiltIn(std::string_view query, std::string_view document,
                           std::string_view instruction) {
  RenderedPair pair;
  pair.chat.text = kBegin;
  AddSpan(instruction, pair.chat);
  pair.chat.text.append(kBeforeQuery);
  AddSpan(query, pair.chat);
  pair.chat.text.append(kBeforeDocument);
  pair.document_begin = pair.chat.text.size();
  AddSpan(document, pair.chat);
  pair.document_end = pair.chat.text.size();
  pair.chat.text.append(kEnd);
  return pair;
}

}  // namespace

absl::StatusOr<text::RenderedChat> PairTemplate::RenderChat(const std::string& query,
                                                            const std::string& document,
                                                            const std::string& instruction) const {
  text::ChatPrompt prompt;
  if (!instruction.empty()) prompt.messages.push_back({.role = "system", .content = instruction});
  prompt.messages.push_back({.role = "query", .content = query});
  prompt.messages.push_back({.role = "document", .content = document});
  return text_->RenderMarkedChat(prompt);
}

std::optional<PairTemplate::Shape> PairTemplate::Probe(const std::string& instruction) const {
  const absl::StatusOr<text::RenderedChat> chat = RenderChat(kAnyQuery, kAnyDocument, instruction);
  if (!chat.ok()) return std::nullopt;
  Shape shape = {.num_spans = chat->content.size()};
  size_t queries = 0, documents = 0, instructions = 0;
  for (size_t i = 0; i < chat->content.size(); ++i) {
    const auto& [begin, end] = chat->content[i];
    const std::string_view content = std::string_view(chat->text).substr(begin, end - begin);
    queries += content == kAnyQuery ? 1 : 0;
    instructions += content == instruction ? 1 : 0;
    if (content != kAnyDocument) continue;
    ++documents;
    shape.document = i;
  }
  const bool is_whole =
      queries == 1 && documents == 1 && instructions == (instruction.empty() ? 0u : 1u);
  return is_whole ? std::optional(shape) : std::nullopt;
}

absl::StatusOr<PairTemplate> PairTemplate::Find(const text::TextModel& text,
                                                std::string_view architecture,
                                                std::string instruction) {
  PairTemplate pairs(&text, std::move(instruction));
  if (text.has_chat_template()) {
    pairs.plain_ = pairs.Probe("");
    pairs.instructed_ = pairs.Probe(kAnyInstruction);
  }
  const bool is_built_in = !pairs.plain_.has_value() && !pairs.instructed_.has_value();
  if (is_built_in && architecture != kFamily) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no template for pairs of texts: the chat template does not show messages of the roles "
        "query and document, and the built-in one is that of Qwen3-Reranker, not of ",
        std::string(architecture)));
  }
  if (is_built_in && pairs.instruction_.empty()) pairs.instruction_ = kInstruction;
  if (!is_built_in && !pairs.instruction_.empty() && !pairs.instructed_.has_value()) {
    return absl::FailedPreconditionError(
        "config_sentence_transformers.json: the default prompt is an instruction, and the chat "
        "template does not show a message of the role system beside a query and a document");
  }
  return pairs;
}

absl::StatusOr<RenderedPair> PairTemplate::Render(
    const std::string& query, const std::string& document,
    const std::optional<std::string>& instruction) const {
  const std::string& told = instruction.has_value() ? *instruction : instruction_;
  if (!plain_.has_value() && !instructed_.has_value()) {
    return RenderBuiltIn(query, document, told);
  }
  const std::optional<Shape>& shape = told.empty() ? plain_ : instructed_;
  if (!shape.has_value()) {
    return protocol::FieldError("instruction", told.empty() ? "the model's template needs one"
                                                            : "the model's template shows none");
  }
  RenderedPair pair;
  ASSIGN_OR_RETURN(pair.chat, RenderChat(query, document, told));
  pair.document_begin = pair.document_end = pair.chat.text.size();
  if (pair.chat.content.size() == shape->num_spans) {
    const auto& [begin, end] = pair.chat.content[shape->document];
    if (std::string_view(pair.chat.text).substr(begin, end - begin) == document) {
      pair.document_begin = begin;
      pair.document_end = end;
    }
  }
  return pair;
}

std::string PairTemplate::summary() const {
  const bool is_built_in = !plain_.has_value() && !instructed_.has_value();
  return absl::StrCat("pairs=", is_built_in ? "qwen3" : "chat", ",", instruction_.size(), ":",
                      instruction_);
}

}  // namespace continuo::server
