// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/text_answers.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"
#include "services/worker/server/session/prompt.h"
#include "services/worker/server/session/validate.h"

namespace continuo::server {
namespace {

absl::Status CheckSize(std::string_view field, size_t bytes) {
  if (bytes <= protocol::kMaxUnsplitResponseBytes) return absl::OkStatus();
  return protocol::FieldError(field,
                              absl::StrCat("the answer would have ", bytes, " bytes, the limit is ",
                                           protocol::kMaxUnsplitResponseBytes));
}

}  // namespace

absl::StatusOr<v1::TokenizeResponse> AnswerTokenize(const v1::TokenizeRequest& request,
                                                    absl::Time now, const ServedModel& model) {
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  if (request.prompt_case() == v1::TokenizeRequest::PROMPT_NOT_SET) {
    return protocol::FieldError("prompt", "is missing: one of text and conversation");
  }
  if (request.has_conversation()) {
    RETURN_IF_ERROR(ValidateConversation("conversation", request.conversation(), model));
  }
  ASSIGN_OR_RETURN(EncodedPrompt prompt, EncodePrompt(request, now, model));
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(prompt.tokens.begin(), prompt.tokens.end());
  response.set_rendered_prompt(std::move(prompt.rendered));
  response.set_max_context_tokens(static_cast<uint32_t>(model.max_context_tokens));
  if (request.return_tokens()) {
    size_t bytes = response.ByteSizeLong();
    for (const int32_t id : prompt.tokens) {
      std::string name = model.text->TokenName(id);
      bytes += name.size();
      RETURN_IF_ERROR(CheckSize(prompt.field, bytes));
      response.add_tokens(std::move(name));
    }
  }
  RETURN_IF_ERROR(CheckSize(prompt.field, response.ByteSizeLong()));
  return response;
}

absl::StatusOr<v1::GetTokenizerResponse> AnswerGetTokenizer(const v1::GetTokenizerRequest& request,
                                                            const ServedModel& model) {
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  v1::GetTokenizerResponse response;
  response.set_config(model.tokenizer_info);
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> AnswerDetokenize(const v1::DetokenizeRequest& request,
                                                        const ServedModel& model) {
  RETURN_IF_ERROR(ValidateModelName(request.model(), model));
  std::vector<int32_t> ids;
  ids.reserve(request.token_ids_size());
  for (int i = 0; i < request.token_ids_size(); ++i) {
    const uint32_t id = request.token_ids(i);
    if (id >= static_cast<uint32_t>(model.vocab_size)) {
      return ValidateToken(absl::StrCat("token_ids[", i, "]"), id, model);
    }
    // An id that only pads the model's rows names no token and has no text.
    if (id < static_cast<uint32_t>(model.text->vocab_size())) {
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  RETURN_IF_ERROR(CheckSize("token_ids", ids.size() * model.max_text_bytes_per_token));
  ASSIGN_OR_RETURN(std::string text, model.text->Decode(ids, request.keep_special_tokens()));
  v1::DetokenizeResponse response;
  response.set_text(std::move(text));
  return response;
}

}  // namespace continuo::server
