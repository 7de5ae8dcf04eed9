// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_work.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/protocol/validate_request.h"
#include "services/worker/server/embed/embed_pair.h"
#include "services/worker/server/session/prompt.h"
#include "services/worker/server/session/validate.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {
namespace {

// The bytes of a vector in a response: its values, and tags and lengths around them.
size_t VectorBytes(int dimensions) { return static_cast<size_t>(dimensions) * sizeof(float) + 12; }

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

engine::Pooling PoolingOf(embedding::Pooling pooling) {
  switch (pooling) {
    case embedding::Pooling::kLast:
      return engine::Pooling::kLast;
    case embedding::Pooling::kFirst:
      return engine::Pooling::kFirst;
    case embedding::Pooling::kMean:
      return engine::Pooling::kMean;
  }
  CONTINUO_CHECK(!"a pooling that is not known");
}

}  // namespace

absl::StatusOr<std::string> ChooseRequestId(const v1::EmbedRequest& request, const CallInfo& call) {
  if (!call.request_id.empty()) {
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", call.request_id));
  }
  if (!request.request_id().empty()) return request.request_id();
  if (!call.request_id.empty()) return call.request_id;
  const uint64_t high = call.random();
  return absl::StrFormat("%016x%016x", high, call.random());
}

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
      ASSIGN_OR_RETURN(PairPrompt pair, EncodePair(request, i, model));
      r.prompt = std::move(pair.tokens);
      r.token_types = std::move(pair.types);
    } else {
      ASSIGN_OR_RETURN(r.prompt, EncodeInput(request, i, prompt, model));
    }
    r.label = work.request_id;
    r.tenant = call.tenant;
    r.reads_state = true;
    r.pooling =
        PoolingOf(model.embedding != nullptr ? model.embedding->pooling() : model.score->pooling());
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
