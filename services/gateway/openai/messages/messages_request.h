// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts bodies of /v1/messages and /v1/messages/count_tokens to requests. The form is that of
// Anthropic's API reference (Messages). Pure functions. Members that are unknown or not supported
// are rejected by name; ranges are checked later, as for gRPC clients.

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// The tools of a body that a model can be told of, and the others.
struct MessagesTools {
  std::vector<int> places;  // of each tool of the request, its place in the body's list
  // The types of tools that were left out: those of Anthropic's own, which bring no schema.
  std::vector<std::string> skipped;
};

struct MessagesCall {
  v1::GenerateRequest request;
  MessagesTools tools;
  bool stream = false;
  bool shows_thinking = false;  // "thinking" asks for blocks with thoughts
  std::string format_member;    // the member that has the answer's schema; empty: none
};

// INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong.
absl::StatusOr<MessagesCall> ParseMessages(std::string_view body);

struct CountTokensCall {
  v1::TokenizeRequest request;
  MessagesTools tools;
};

// Reads a body of /v1/messages/count_tokens, which has what a prompt is made of.
absl::StatusOr<CountTokensCall> ParseCountTokens(std::string_view body);

}  // namespace continuo::gateway::openai
