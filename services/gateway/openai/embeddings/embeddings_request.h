// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// A body of /v1/embeddings.
struct EmbeddingsCall {
  v1::EmbedRequest request;
  bool base64 = false;
  bool is_array = true;  // of inputs; else there is one
};

// INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong. Ranges are
// checked later, as for gRPC clients (protocol/validate_request.h).
absl::StatusOr<EmbeddingsCall> ParseEmbeddings(std::string_view body);

// The same error of a request whose first input is input `first` of the body, with the field's name
// in the body.
absl::Status WithEmbeddingsName(const EmbeddingsCall& call, int first, const absl::Status& status);

// Reads "truncate_prompt_tokens" and "truncation_side". INVALID_ARGUMENT names the member that has
// a wrong type or value, or needs the other.
absl::Status ReadTruncation(const Json& body, v1::EmbedRequest* request);

// Divides a request into ones that Embed answers, in order: a response of `dimensions` values for
// each input fits a message, and no request has many more than kPartTokens tokens.
inline constexpr int64_t kPartTokens = 32768;
std::vector<v1::EmbedRequest> Divide(v1::EmbedRequest request, uint32_t dimensions);

}  // namespace continuo::gateway::openai
