// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/pairs/pair_template.h"

#include <algorithm>
#include <utility>
#include <vector>

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

// The text without the white space around it.
std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

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
  Shape shape;
  for (const auto& [begin, end] : chat->content) {
    const std::string_view content = std::string_view(chat->text).substr(begin, end - begin);
    shape.push_back(content == kAnyQuery      ? Part::kQuery
                    : content == kAnyDocument ? Part::kDocument
                    : content == instruction  ? Part::kInstruction
                                              : Part::kOther);
  }
  const bool is_whole =
      std::ranges::count(shape, Part::kQuery) == 1 &&
      std::ranges::count(shape, Part::kDocument) == 1 &&
      std::ranges::count(shape, Part::kInstruction) == (instruction.empty() ? 0 : 1);
  return is_whole ? std::optional(std::move(shape)) : std::nullopt;
}

void PairTemplate::FindDocument(const Shape& shape, std::string_view query,
                                std::string_view document, std::string_view instruction,
                                RenderedPair& pair) {
  pair.document_begin = pair.document_end = pair.chat.text.size();
  if (document.empty()) return;
  const auto text_of = [&](Part part) {
    return part == Part::kQuery      ? query
           : part == Part::kDocument ? document
           : part == Part::kOther    ? std::string_view("other")
                                     : instruction;
  };
  // Of empty contents there are no spans, and of blank ones none where the template trims them.
  for (const bool trims : {false, true}) {
    std::vector<Part> shown;
    for (const Part part : shape) {
      const std::string_view text = text_of(part);
      if (!(trims ? Trimmed(text) : text).empty()) shown.push_back(part);
    }
    if (shown.size() != pair.chat.content.size()) continue;
    const auto at = std::ranges::find(shown, Part::kDocument);
    if (at == shown.end()) return;  // blank
    const auto& [begin, end] = pair.chat.content[static_cast<size_t>(at - shown.begin())];
    const std::string_view text = std::string_view(pair.chat.text).substr(begin, end - begin);
    if (Trimmed(text) != Trimmed(document)) break;
    pair.document_begin = begin;
    pair.document_end = end;
    return;
  }
  pair.is_cuttable = false;
}

absl::StatusOr<PairTemplate> PairTemplate::Find(const text::TextModel& text,
                                                std::string_view architecture,
                                                std::string instruction) {
  PairTemplate pairs(&text, std::move(instruction));
  if (text.has_chat_template()) {
    pairs.plain_ = pairs.Probe("");
    pairs.instructed_ = pairs.Probe(kAnyInstruction);
  }
  const bool is_built_in = pairs.is_built_in();
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
  if (is_built_in()) return RenderBuiltIn(query, document, told);
  const std::optional<Shape>& shape = told.empty() ? plain_ : instructed_;
  if (!shape.has_value()) {
    return protocol::FieldError("instruction", told.empty() ? "the model's template needs one"
                                                            : "the model's template shows none");
  }
  RenderedPair pair;
  ASSIGN_OR_RETURN(pair.chat, RenderChat(query, document, told));
  FindDocument(*shape, query, document, told, pair);
  return pair;
}

std::string PairTemplate::summary() const {
  return absl::StrCat("pairs=", is_built_in() ? "qwen3" : "chat", ",", instruction_.size(), ":",
                      instruction_);
}

}  // namespace continuo::server
