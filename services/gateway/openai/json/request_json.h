// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bodies of /v1/chat/completions and /v1/completions to GenerateRequests. Pure functions. What
// they cannot honour is refused by name; members that they do not know are ignored. Ranges are
// checked later, as for gRPC clients (request_check.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

enum class Endpoint { kChat, kCompletions };

// Choices of one call, all prompts together.
inline constexpr int kMaxChoices = 128;

// What the answer's form depends on.
struct AnswerForm {
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  bool include_usage = false;  // a last event with the usage
  bool logprobs = false;
  // kCompletions: of each prompt, what to repeat before the answer; empty: nothing.
  std::vector<std::string> echo;
  int num_sequences = 1;  // of each prompt; prompt p has choices p·n to p·n + n − 1
};

struct ParsedCall {
  AnswerForm form;
  std::vector<v1::GenerateRequest> requests;  // one for each prompt, at least one
};

// INVALID_ARGUMENT names the member (FieldOf), where it is of one.
absl::StatusOr<ParsedCall> ParseCall(Endpoint endpoint, std::string_view body);

// The name that OpenAI's interface has for a field of GenerateRequest or of its parts:
// "sampling.top_p" is "top_p", "stopping.strings[2]" is "stop". Others stay as they are.
std::string ParamOf(Endpoint endpoint, std::string_view field);

}  // namespace continuo::gateway::openai
