// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_work.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/pairs/pair_template.h"
#include "services/worker/server/session/prompt.h"
#include "services/worker/server/session/validate.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {
namespace {

// The bytes of a vector in a response: its values, and tags and lengths around them.
size_t VectorBytes(int dimensions) { return static_cast<size_t>(dimensions) * sizeof(float) + 12; }

absl::StatusOr<std::string> ChooseRequestId(const v1::EmbedRequest& request, const CallInfo& call) {
  if (!call.request_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", call.request_id));
  }
  if (!request.request_id().empty()) return request.request_id();
  if (!call.request_id.empty()) return call.request_id;
  const uint64_t high = call.random();
  return absl::StrFormat("%016x%016x", high, call.random());
}

// The text in front of each input.
std::string PromptOf(const v1::EmbedRequest& request, const embedding::EmbeddingHead& head) {
  const std::string& name =
      request.has_prompt_name() ? request.prompt_name() : head.default_prompt();
  const embedding::Prompt* const prompt = name.empty() ? nullptr : head.FindPrompt(name);
  return prompt == nullptr ? "" : prompt->text;
}

// Keeps `most` of the tokens, the last ones or the first.
void Cut(std::vector<int32_t>& tokens, size_t most, bool keep_first) {
  if (tokens.size() <= most) return;
  if (!keep_first) tokens.erase(tokens.begin(), tokens.end() - static_cast<ptrdiff_t>(most));
  tokens.resize(most);
}

// Cuts what is between the tokens that the tokenizer adds in front and at the end; `plain` are the
// tokens without these.
absl::Status CutText(std::vector<int32_t>& tokens, std::vector<int32_t> plain, size_t most,
                     bool keep_first) {
  const auto body = std::ranges::search(tokens, plain);
  if (plain.empty() || body.empty()) {  // nothing is added, or it cannot be told apart
    Cut(tokens, most, keep_first);
    return absl::OkStatus();
  }
  const std::vector<int32_t> front(tokens.begin(), body.begin()), back(body.end(), tokens.end());
  const size_t added = front.size() + back.size();
  if (most <= added) {
    return protocol::FieldError("truncation.max_tokens",
                                absl::StrCat(most, " leaves nothing of a text beside the ", added,
                                             " special tokens that the tokenizer adds"));
  }
  Cut(plain, most - added, keep_first);
  tokens = front;
  tokens.insert(tokens.end(), plain.begin(), plain.end());
  tokens.insert(tokens.end(), back.begin(), back.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> EncodeInput(const v1::EmbedRequest& request, int index,
                                                 const std::string& prompt,
                                                 const ServedModel& model) {
  const v1::EmbedInput& input = request.inputs(index);
  const bool is_cut = request.has_truncation();
  const auto limit = static_cast<size_t>(model.max_context_tokens);
  size_t most = request.truncation().max_tokens();
  if (most == 0) most = limit;
  most = std::min(most, limit);
  std::vector<int32_t> tokens;
  std::string field;
  if (input.has_text()) {
    field = absl::StrCat("inputs[", index, "].text");
    const std::string text = absl::StrCat(prompt, input.text());
    ASSIGN_OR_RETURN(tokens, EncodeText(field, text, /*add_special=*/true, is_cut, model));
    if (is_cut && tokens.size() > most) {
      ASSIGN_OR_RETURN(std::vector<int32_t> plain,
                       EncodeText(field, text, /*add_special=*/false, is_cut, model));
      RETURN_IF_ERROR(CutText(tokens, std::move(plain), most, request.truncation().keep_first()));
    }
  } else {
    field = absl::StrCat("inputs[", index, "].token_ids");
    const auto& ids = input.token_ids().ids();
    for (int i = 0; i < ids.size(); ++i) {
      if (ids[i] < static_cast<uint32_t>(model.vocab_size)) continue;
      return ValidateToken(absl::StrCat(field, ".ids[", i, "]"), ids[i], model);
    }
    tokens.assign(ids.begin(), ids.end());
    if (is_cut) Cut(tokens, most, request.truncation().keep_first());
  }
  RETURN_IF_ERROR(ValidatePromptTokens(field, tokens, model));
  return tokens;
}

engine::Pooling PoolingOf(const embedding::EmbeddingHead& head) {
  switch (head.pooling()) {
    case embedding::Pooling::kLast:
      return engine::Pooling::kLast;
    case embedding::Pooling::kFirst:
      return engine::Pooling::kFirst;
    case embedding::Pooling::kMean:
      return engine::Pooling::kMean;
  }
  CONTINUO_CHECK(!"a pooling that is not known");
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

// Cuts the document as the request asks for.
absl::Status CutDocument(const v1::EmbedRequest& request, const RenderedPair& pair,
                         const std::string& field, const ServedModel& model,
                         std::vector<int32_t>& tokens) {
  const auto limit = static_cast<size_t>(model.max_context_tokens);
  const size_t asked = request.truncation().max_tokens();
  const size_t most = asked == 0 ? limit : std::min(asked, limit);
  if (!pair.is_cuttable) {
    const bool has_room = !request.has_truncation() || tokens.size() <= most;
    if (request.max_document_tokens() == 0 && has_room) return absl::OkStatus();
    return protocol::FieldError(field,
                                "the model's template shows it changed, so that it cannot be cut");
  }
  ASSIGN_OR_RETURN(const DocumentPlace place, FindDocument(pair, field, model, tokens));
  const auto& [before, behind] = place;
  const size_t beside = before + behind;
  const auto begin = tokens.begin() + static_cast<ptrdiff_t>(before);
  const auto end = tokens.end() - static_cast<ptrdiff_t>(behind);
  std::vector<int32_t> document(begin, end);
  if (request.max_document_tokens() > 0) {
    Cut(document, request.max_document_tokens(), /*keep_first=*/true);
  }
  if (request.has_truncation()) {
    if (asked != 0 && (asked < beside || (asked == beside && !document.empty()))) {
      return protocol::FieldError("truncation.max_tokens",
                                  absl::StrCat(asked, " leaves nothing of a document beside the ",
                                               beside, " tokens of query and template"));
    }
    // What is too long without a document is refused by the caller.
    if (most > beside) Cut(document, most - beside, request.truncation().keep_first());
  }
  const std::vector<int32_t> whole = std::move(tokens);
  tokens.assign(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(before));
  tokens.insert(tokens.end(), document.begin(), document.end());
  tokens.insert(tokens.end(), whole.end() - static_cast<ptrdiff_t>(behind), whole.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> EncodePair(const v1::EmbedRequest& request, int index,
                                                const ServedModel& model) {
  const v1::TextPair& pair = request.inputs(index).pair();
  const std::string field = absl::StrCat("inputs[", index, "].pair.document");
  std::optional<std::string> instruction;
  if (request.has_instruction()) instruction = request.instruction();
  ASSIGN_OR_RETURN(const RenderedPair rendered,
                   model.pairs->Render(pair.query(), pair.document(), instruction));
  const bool is_cut = request.has_truncation() || request.max_document_tokens() > 0;
  ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                   EncodeRendered(field, rendered.chat, is_cut, model));
  if (is_cut) RETURN_IF_ERROR(CutDocument(request, rendered, field, model, tokens));
  RETURN_IF_ERROR(ValidatePromptTokens(field, tokens, model));
  return tokens;
}

}  // namespace

absl::StatusOr<EmbedWork> PrepareEmbedding(const v1::EmbedRequest& request, const CallInfo& call,
                                           const ServedModel& model, const SaltKey& salt_key) {
  RETURN_IF_ERROR(ValidateEmbed(request, model));
  EmbedWork work;
  ASSIGN_OR_RETURN(work.request_id, ChooseRequestId(request, call));
  work.dimensions = 1;
  std::string prompt;
  if (model.embedding != nullptr) {
    const embedding::EmbeddingHead& head = *model.embedding;
    work.dimensions =
        request.has_dimensions() ? static_cast<int>(request.dimensions()) : head.dimensions();
    work.normalises = request.has_normalize() ? request.normalize() : head.normalises();
    prompt = PromptOf(request, head);
  }
  const size_t bytes = static_cast<size_t>(request.inputs_size()) * VectorBytes(work.dimensions);
  if (bytes > protocol::kMaxUnsplitResponseBytes) {
    return protocol::FieldError(
        "inputs", absl::StrCat("the vectors of ", request.inputs_size(), " inputs have ", bytes,
                               " bytes, a response has at most ",
                               protocol::kMaxUnsplitResponseBytes, ": send at most ",
                               protocol::kMaxUnsplitResponseBytes / VectorBytes(work.dimensions)));
  }
  const std::array<uint64_t, 2> salt =
      salt_key.Combine(call.tenant, request.cache().salt(), model.adapter_digest);
  for (int i = 0; i < request.inputs_size(); ++i) {
    engine::Request& r = work.requests.emplace_back();
    if (request.inputs(i).has_pair()) {
      ASSIGN_OR_RETURN(r.prompt, EncodePair(request, i, model));
    } else {
      ASSIGN_OR_RETURN(r.prompt, EncodeInput(request, i, prompt, model));
    }
    r.label = work.request_id;
    r.tenant = call.tenant;
    r.reads_state = true;
    if (model.embedding != nullptr) r.pooling = PoolingOf(*model.embedding);
    r.adapter = model.adapter;
    r.adapter_lease = model.adapter_lease;
    r.priority = request.priority();
    r.deadline = call.deadline;
    r.cache_salt = salt;
    r.cache_bypass = request.cache().bypass();
  }
  return work;
}

}  // namespace continuo::server
