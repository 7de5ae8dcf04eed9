// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts bodies of /v1/chat/completions and /v1/completions to GenerateRequests. Pure functions.
// Members that are unknown or not supported are rejected by name (members.h). Ranges are checked
// later, as for gRPC clients (protocol/validate_request.h).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/openai/json/json_fields.h"

namespace continuo::gateway::openai {

// The routes with a body. Those of the last two are text_json.h's.
enum class Endpoint { kChat, kCompletions, kTokenize, kDetokenize };

// Bounds the choices of one call, all prompts together.
inline constexpr int kMaxChoices = 128;

// The names that the client used, where a thing has several.
struct ParamNames {
  ParamNames() = default;
  ParamNames(Endpoint endpoint) : endpoint(endpoint) {}  // NOLINT: a call that was not read

  Endpoint endpoint = Endpoint::kChat;
  bool as_written = false;             // errors name members already, and no fields
  bool max_completion_tokens = false;  // not max_tokens
  bool stop_is_array = false;
  int prompt = -1;               // which of several prompts is meant; -1: there is one
  std::string constraint;        // the member that has the constraint; empty: none
  std::vector<int> tool_places;  // the index in the body of each tool; empty: it is the same
};

// The form of the answer.
struct AnswerForm {
  Endpoint endpoint = Endpoint::kChat;
  bool stream = false;
  std::optional<bool> event_ids;  // of a stream's events, where the body says it
  bool include_usage = false;     // the last event has the usage
  bool continuous_usage = false;  // every event has the usage so far
  bool token_ids = false;         // the answer has the ids of prompt and choices
  bool logprobs = false;
  bool prompt_logprobs = false;  // never with stream
  // kCompletions: each prompt is repeated before its answers, with its log-probabilities where
  // those of the answer are requested.
  bool echo = false;
  // With echo: the text of each prompt; empty where the prompt is token ids, whose text the worker
  // tells (Output.prompt_tokens).
  std::vector<std::string> echo_texts;
  int num_sequences = 1;  // of each prompt; prompt p has choices p·n to p·n + n − 1
  ParamNames names;
};

struct ParsedCall {
  AnswerForm form;
  std::vector<v1::GenerateRequest> requests;  // one for each prompt, at least one
};

// INVALID_ARGUMENT names the member (FieldOf), as the body has it, if one is wrong. For kChat and
// kCompletions.
absl::StatusOr<ParsedCall> ParseCall(Endpoint endpoint, std::string_view body);

// Reads "messages", tools and the members that say how they are rendered. `text` is the body's,
// `tool_places` as ParamNames has it.
absl::Status ReadConversation(const Json& body, std::string_view text,
                              v1::Conversation* conversation, std::vector<int>* tool_places);

// The name over HTTP for a field of GenerateRequest, TokenizeRequest, DetokenizeRequest or of their
// parts: "sampling.top_p" is "top_p", "stopping.strings[2]" is "stop[2]", or "stop" where that was
// one string. Others stay as they are.
std::string ParamOf(const ParamNames& names, std::string_view field);

// The place in the body of a tool of the conversation, "[0].parameters", whose index is another
// where tools were left out.
std::string ToolPlaceOf(const std::vector<int>& tool_places, std::string_view place);

}  // namespace continuo::gateway::openai
