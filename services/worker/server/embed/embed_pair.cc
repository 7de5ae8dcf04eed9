// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_pair.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/worker/server/pairs/pair_template.h"
#include "services/worker/server/session/prompt.h"
#include "services/worker/server/session/validate.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {
namespace {

bool IsCut(const v1::EmbedRequest& request) {
  return request.has_truncation() || request.max_document_tokens() > 0;
}

// The most tokens of a prompt that is cut.
size_t MostTokens(const v1::EmbedRequest& request, const ServedModel& model) {
  const auto limit = static_cast<size_t>(model.max_context_tokens);
  const size_t asked = request.truncation().max_tokens();
  return asked == 0 ? limit : std::min(asked, limit);
}

// The number of elements in front that are equal.
size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}
size_t CommonSuffix(std::span<const int32_t> a, std::span<const int32_t> b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[a.size() - 1 - n] == b[b.size() - 1 - n]) ++n;
  return n;
}

// Where the tokens of a prompt's document lie.
struct DocumentPlace {
  size_t before = 0, behind = 0;  // the tokens in front of it and behind it
};

// The document's tokens are those between the ones that the texts in front and behind have alone;
// spaces in front of it are its own. Thus it is the same whether it is cut or not.
absl::StatusOr<DocumentPlace> FindDocument(const RenderedPair& pair, const std::string& field,
                                           const ServedModel& model,
                                           std::span<const int32_t> tokens) {
  if (pair.document_begin == pair.document_end) return DocumentPlace{.before = tokens.size()};
  const std::string_view text = pair.chat.text;
  text::RenderedChat front = {.text = std::string(text.substr(0, pair.document_begin))};
  front.text.resize(front.text.find_last_not_of(" \n") + 1);
  // The text behind alone, and behind a letter that the document does not end with: a tokenizer may
  // mark where a text begins.
  text::RenderedChat back = {.text = std::string(text.substr(pair.document_end))};
  const char letter = text[pair.document_end - 1] == 'x' ? 'y' : 'x';
  text::RenderedChat after_letter = {.text = letter + back.text};
  for (const auto& [begin, end] : pair.chat.content) {
    if (begin < pair.document_begin) {
      front.content.push_back(
          {std::min(begin, front.text.size()), std::min(end, front.text.size())});
    } else if (begin >= pair.document_end) {
      const size_t shift = pair.document_end;
      back.content.push_back({begin - shift, end - shift});
      after_letter.content.push_back({begin - shift + 1, end - shift + 1});
    }
  }
  ASSIGN_OR_RETURN(const auto front_tokens, EncodeRendered(field, front, true, model));
  ASSIGN_OR_RETURN(const auto back_tokens, EncodeRendered(field, back, true, model));
  ASSIGN_OR_RETURN(const auto letter_tokens, EncodeRendered(field, after_letter, true, model));
  DocumentPlace place = {.before = CommonPrefix(tokens, front_tokens)};
  const std::span<const int32_t> rest = tokens.subspan(place.before);
  place.behind = std::max(CommonSuffix(rest, back_tokens), CommonSuffix(rest, letter_tokens));
  return place;
}

// The tokens [begin, end) of a prompt.
struct TokenRange {
  size_t begin = 0, end = 0;
};

// The tokens of a document that stay, of a prompt of `num_tokens`.
absl::StatusOr<TokenRange> KeptOf(const v1::EmbedRequest& request, const DocumentPlace& place,
                                  size_t num_tokens, const ServedModel& model) {
  TokenRange kept = {place.before, num_tokens - place.behind};
  if (const size_t most = request.max_document_tokens(); most > 0) {
    kept.end = std::min(kept.end, kept.begin + most);
  }
  if (!request.has_truncation()) return kept;
  const size_t size = kept.end - kept.begin, beside = place.before + place.behind;
  const size_t asked = request.truncation().max_tokens();
  if (asked != 0 && (asked < beside || (asked == beside && size > 0))) {
    return protocol::FieldError("truncation.max_tokens",
                                absl::StrCat(asked, " leaves nothing of a document beside the ",
                                             beside, " tokens of query and template"));
  }
  // What is too long without a document is refused by the caller.
  const size_t most = MostTokens(request, model);
  if (most <= beside || size <= most - beside) return kept;
  if (request.truncation().keep_first()) {
    kept.end = kept.begin + most - beside;
  } else {
    kept.begin = kept.end - (most - beside);
  }
  return kept;
}

void Keep(std::vector<int32_t>& values, const DocumentPlace& place, const TokenRange& kept) {
  const auto at = [&](size_t i) { return values.begin() + static_cast<ptrdiff_t>(i); };
  values.erase(at(kept.end), at(values.size() - place.behind));
  values.erase(at(place.before), at(kept.begin));
}

absl::StatusOr<PairPrompt> EncodeByTemplate(const v1::EmbedRequest& request,
                                            const v1::TextPair& pair, const std::string& field,
                                            const ServedModel& model) {
  std::optional<std::string> instruction;
  if (request.has_instruction()) instruction = request.instruction();
  ASSIGN_OR_RETURN(const RenderedPair rendered,
                   model.pairs->Render(pair.query(), pair.document(), instruction));
  PairPrompt prompt;
  ASSIGN_OR_RETURN(prompt.tokens, EncodeRendered(field, rendered.chat, IsCut(request), model));
  if (!IsCut(request)) return prompt;
  if (!rendered.is_cuttable) {
    const bool has_room =
        !request.has_truncation() || prompt.tokens.size() <= MostTokens(request, model);
    if (request.max_document_tokens() == 0 && has_room) return prompt;
    return protocol::FieldError(field,
                                "the model's template shows it changed, so that it cannot be cut");
  }
  ASSIGN_OR_RETURN(const DocumentPlace place, FindDocument(rendered, field, model, prompt.tokens));
  ASSIGN_OR_RETURN(const TokenRange kept, KeptOf(request, place, prompt.tokens.size(), model));
  Keep(prompt.tokens, place, kept);
  return prompt;
}

absl::StatusOr<PairPrompt> EncodeJoined(const v1::EmbedRequest& request, const v1::TextPair& pair,
                                        const std::string& field, const ServedModel& model) {
  ASSIGN_OR_RETURN(text::EncodedPair encoded,
                   EncodeTextPair(field, pair.query(), pair.document(), IsCut(request), model));
  PairPrompt prompt = {std::move(encoded.tokens), std::move(encoded.types)};
  if (IsCut(request)) {
    const DocumentPlace place = {.before = encoded.second_begin,
                                 .behind = prompt.tokens.size() - encoded.second_end};
    ASSIGN_OR_RETURN(const TokenRange kept, KeptOf(request, place, prompt.tokens.size(), model));
    Keep(prompt.tokens, place, kept);
    Keep(prompt.types, place, kept);
  }
  // Without a table of parts the types say nothing.
  if (model.score->num_token_types() < 2) prompt.types.clear();
  return prompt;
}

}  // namespace

absl::StatusOr<PairPrompt> EncodePair(const v1::EmbedRequest& request, int index,
                                      const ServedModel& model) {
  const v1::TextPair& pair = request.inputs(index).pair();
  const std::string field = absl::StrCat("inputs[", index, "].pair.document");
  ASSIGN_OR_RETURN(PairPrompt prompt, model.pairs == nullptr
                                          ? EncodeJoined(request, pair, field, model)
                                          : EncodeByTemplate(request, pair, field, model));
  RETURN_IF_ERROR(ValidatePromptTokens(field, prompt.tokens, model));
  return prompt;
}

}  // namespace continuo::server
