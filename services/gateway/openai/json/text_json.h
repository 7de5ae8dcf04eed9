// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts the bodies of /tokenize and /detokenize, which have vLLM's form. Pure functions.

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// "prompt" with add_special_tokens (default true), or "messages" as a chat has them.
// INVALID_ARGUMENT names the member that is wrong, unknown or missing.
absl::StatusOr<v1::TokenizeRequest> ParseTokenize(std::string_view body);

// "tokens". Special tokens are part of the text.
absl::StatusOr<v1::DetokenizeRequest> ParseDetokenize(std::string_view body);

// {"count","max_model_len","tokens","token_strs"}; "token_strs" is null unless `has_token_strs`.
std::string TokenizeJson(const v1::TokenizeResponse& response, bool has_token_strs);

// {"prompt"}.
std::string DetokenizeJson(const v1::DetokenizeResponse& response);

}  // namespace continuo::gateway::openai
