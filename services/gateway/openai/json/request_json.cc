// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/request_json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/prompt_json.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
// OpenAI's default for completions; a chat may fill the rest of the context.
constexpr uint32_t kCompletionsMaxTokens = 16;
// Bounds the fields that each prompt of a call repeats, for all prompts together.
constexpr size_t kMaxRepeatedBytes = 1 << 20;

// Rejects members that would change the answer and are not supported. Empty values ask for nothing.
absl::Status RejectUnsupported(Endpoint endpoint, const Json& body) {
  for (const char* name :
       {"tools", "functions", "function_call", "audio", "web_search_options", "suffix"}) {
    const Json* const json = Find(body, name);
    if (json != nullptr && !(json->empty() || *json == "")) {
      return protocol::FieldError(name, "is not supported");
    }
  }
  if (const Json* const choice = Find(body, "tool_choice");
      choice != nullptr && *choice != "none" && *choice != "auto") {
    return protocol::FieldError("tool_choice", "tools are not supported");
  }
  if (const Json* const format = Find(body, "response_format"); format != nullptr) {
    const Json* const type = format->is_object() ? Find(*format, "type") : nullptr;
    if (type == nullptr || *type != "text") {
      return protocol::FieldError("response_format", "only the type \"text\" is supported");
    }
  }
  if (const Json* const modalities = Find(body, "modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    return protocol::FieldError("modalities", "only [\"text\"] is supported");
  }
  if (endpoint == Endpoint::kChat && Find(body, "prompt") != nullptr &&
      Find(body, "messages") == nullptr) {
    return protocol::FieldError("prompt", "is of /v1/completions; a chat has messages");
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const Json& body, v1::Sampling* sampling) {
  const auto number = [&](const char* name, void (v1::Sampling::*set)(float)) -> absl::Status {
    std::optional<float> value;
    RETURN_IF_ERROR(Read(body, name, &value));
    if (value.has_value()) (sampling->*set)(*value);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(number("temperature", &v1::Sampling::set_temperature));
  RETURN_IF_ERROR(number("top_p", &v1::Sampling::set_top_p));
  RETURN_IF_ERROR(number("min_p", &v1::Sampling::set_min_p));
  RETURN_IF_ERROR(number("repetition_penalty", &v1::Sampling::set_repetition_penalty));
  RETURN_IF_ERROR(number("presence_penalty", &v1::Sampling::set_presence_penalty));
  RETURN_IF_ERROR(number("frequency_penalty", &v1::Sampling::set_frequency_penalty));
  std::optional<int64_t> top_k, n;
  RETURN_IF_ERROR(ReadInteger(body, "top_k", -1, kMaxUint32, &top_k));
  // Other servers write "all" as -1.
  if (top_k.has_value()) sampling->set_top_k(static_cast<uint32_t>(std::max<int64_t>(*top_k, 0)));
  RETURN_IF_ERROR(ReadInteger(body, "n", 1, kMaxChoices, &n));
  if (n.has_value()) sampling->set_num_sequences(static_cast<uint32_t>(*n));
  if (const Json* const seed = Find(body, "seed"); seed != nullptr) {
    if (!seed->is_number_integer()) return WrongType("seed", "an integer", *seed);
    // OpenAI's seeds have a sign; its two's complement is as good a seed.
    sampling->set_seed(seed->is_number_unsigned() ? seed->get<uint64_t>()
                                                  : static_cast<uint64_t>(seed->get<int64_t>()));
  }
  if (const Json* const bias = Find(body, "logit_bias"); bias != nullptr) {
    if (!bias->is_object()) return WrongType("logit_bias", "an object", *bias);
    for (const auto& [key, value] : bias->items()) {
      uint32_t id;
      if (!absl::SimpleAtoi(key, &id)) {
        return protocol::FieldError("logit_bias", "its keys must be token ids");
      }
      if (!value.is_number()) return WrongType("logit_bias", "numbers by token id", value);
      (*sampling->mutable_logit_bias())[id] = value.get<float>();
    }
  }
  return absl::OkStatus();
}

absl::Status ReadStopping(const Json& body, v1::Stopping* stopping) {
  std::optional<int64_t> max_tokens, min_tokens;
  RETURN_IF_ERROR(ReadInteger(body, "max_tokens", 0, kMaxUint32, &max_tokens));
  // The newer name wins.
  RETURN_IF_ERROR(ReadInteger(body, "max_completion_tokens", 0, kMaxUint32, &max_tokens));
  if (max_tokens.has_value()) stopping->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  RETURN_IF_ERROR(ReadInteger(body, "min_tokens", 0, kMaxUint32, &min_tokens));
  if (min_tokens.has_value()) stopping->set_min_tokens(static_cast<uint32_t>(*min_tokens));
  std::optional<bool> ignore_eos;
  RETURN_IF_ERROR(Read(body, "ignore_eos", &ignore_eos));
  stopping->set_ignore_eos(ignore_eos.value_or(false));

  const Json* const stop = Find(body, "stop");
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) {
    stopping->add_strings(stop->get<std::string>());
    return absl::OkStatus();
  }
  if (!stop->is_array()) return WrongType("stop", "a string or an array of strings", *stop);
  for (const Json& text : *stop) {
    if (!text.is_string()) return WrongType("stop", "an array of strings", text);
    stopping->add_strings(text.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadLogprobs(Endpoint endpoint, const Json& body, v1::Output* output) {
  constexpr int64_t kMax = 20;
  if (endpoint == Endpoint::kCompletions) {
    std::optional<int64_t> logprobs;
    RETURN_IF_ERROR(ReadInteger(body, "logprobs", 0, kMax, &logprobs));
    if (logprobs.has_value()) output->set_logprobs(static_cast<uint32_t>(*logprobs));
    return absl::OkStatus();
  }
  std::optional<bool> logprobs;
  std::optional<int64_t> top;
  RETURN_IF_ERROR(Read(body, "logprobs", &logprobs));
  RETURN_IF_ERROR(ReadInteger(body, "top_logprobs", 0, kMax, &top));
  if (logprobs.value_or(false)) {
    output->set_logprobs(static_cast<uint32_t>(top.value_or(0)));
  } else if (top.value_or(0) > 0) {
    return protocol::FieldError("top_logprobs", "needs logprobs to be true");
  }
  return absl::OkStatus();
}

absl::Status ReadForm(const Json& body, AnswerForm* form) {
  std::optional<bool> stream, include_usage;
  RETURN_IF_ERROR(Read(body, "stream", &stream));
  form->stream = stream.value_or(false);
  const Json* const options = Find(body, "stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  if (!form->stream) return protocol::FieldError("stream_options", "needs stream to be true");
  if (!Read(*options, "include_usage", &include_usage).ok()) {
    return WrongType("stream_options.include_usage", "a boolean", *Find(*options, "include_usage"));
  }
  form->include_usage = include_usage.value_or(false);
  return absl::OkStatus();
}

// Reads "echo". Only text without log-probabilities is repeated: ids would have to be decoded
// first, and the text of a prompt's first token, which has no log-probability, is not known here.
absl::Status ReadEcho(const Json& body, const std::vector<v1::GenerateRequest>& requests,
                      AnswerForm* form) {
  std::optional<bool> echo;
  RETURN_IF_ERROR(Read(body, "echo", &echo));
  if (!echo.value_or(false)) return absl::OkStatus();
  if (form->logprobs)
    return protocol::FieldError("echo", "is not supported together with logprobs");
  for (const v1::GenerateRequest& request : requests) {
    if (!request.has_text()) return protocol::FieldError("echo", "is not supported of token ids");
    form->echo.push_back(request.text());
  }
  return absl::OkStatus();
}

absl::Status ReadCompletionsOnly(const Json& body, std::vector<v1::GenerateRequest>* requests,
                                 AnswerForm* form, v1::GenerateRequest* common) {
  if (!common->stopping().has_max_tokens()) {
    common->mutable_stopping()->set_max_tokens(kCompletionsMaxTokens);
  }
  std::optional<int64_t> best_of;
  RETURN_IF_ERROR(ReadInteger(body, "best_of", 1, kMaxChoices, &best_of));
  if (best_of.has_value() && *best_of != form->num_sequences) {
    return protocol::FieldError("best_of", "is supported only where it equals n");
  }
  RETURN_IF_ERROR(ReadPrompts(body, requests));
  return ReadEcho(body, *requests, form);
}

absl::Status ReadChatOnly(const Json& body, std::vector<v1::GenerateRequest>* requests) {
  v1::Conversation* const conversation = requests->emplace_back().mutable_conversation();
  std::optional<bool> continue_final;
  RETURN_IF_ERROR(Read(body, "continue_final_message", &continue_final));
  conversation->set_continue_final_message(continue_final.value_or(false));
  if (const Json* const arguments = Find(body, "chat_template_kwargs"); arguments != nullptr) {
    if (!arguments->is_object()) return WrongType("chat_template_kwargs", "an object", *arguments);
    conversation->set_template_arguments(arguments->dump());
  }
  return ReadMessages(body, conversation);
}

}  // namespace

absl::StatusOr<ParsedCall> ParseCall(Endpoint endpoint, std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  RETURN_IF_ERROR(RejectUnsupported(endpoint, json));
  ParsedCall call;
  v1::GenerateRequest common;
  std::optional<std::string> model, user;
  RETURN_IF_ERROR(Read(json, "model", &model));
  RETURN_IF_ERROR(Read(json, "user", &user));
  common.set_model(model.value_or(""));
  RETURN_IF_ERROR(ReadSampling(json, common.mutable_sampling()));
  RETURN_IF_ERROR(ReadStopping(json, common.mutable_stopping()));
  RETURN_IF_ERROR(ReadLogprobs(endpoint, json, common.mutable_output()));
  RETURN_IF_ERROR(ReadForm(json, &call.form));
  call.form.endpoint = endpoint;
  call.form.logprobs = common.output().has_logprobs();
  if (common.sampling().has_num_sequences()) {
    call.form.num_sequences = static_cast<int>(common.sampling().num_sequences());
  }
  if (endpoint == Endpoint::kChat) {
    RETURN_IF_ERROR(ReadChatOnly(json, &call.requests));
  } else {
    RETURN_IF_ERROR(ReadCompletionsOnly(json, &call.requests, &call.form, &common));
  }
  if (call.requests.size() * static_cast<size_t>(call.form.num_sequences) >
      static_cast<size_t>(kMaxChoices)) {
    return protocol::FieldError(
        "n", absl::StrCat("asks for ", call.form.num_sequences, " answers to each of ",
                          call.requests.size(), " prompts, the limit is ", kMaxChoices, " in all"));
  }
  if (call.requests.size() > 1 &&
      call.requests.size() * common.ByteSizeLong() > kMaxRepeatedBytes) {
    return protocol::FieldError(
        "prompt", absl::StrCat("has ", call.requests.size(), " parts with ", common.ByteSizeLong(),
                               " bytes of other members each, the limit is ", kMaxRepeatedBytes,
                               " bytes in all"));
  }
  for (v1::GenerateRequest& request : call.requests) request.MergeFrom(common);
  return call;
}

std::string ParamOf(Endpoint endpoint, std::string_view field) {
  const bool chat = endpoint == Endpoint::kChat;
  const std::array<std::pair<std::string_view, std::string_view>, 9> names = {{
      {"sampling.num_sequences", "n"},
      {"stopping.strings", "stop"},
      {"output.logprobs", chat ? "top_logprobs" : "logprobs"},
      {"conversation.template_arguments", "chat_template_kwargs"},
      {"conversation.messages", "messages"},
      {"conversation", "messages"},
      {"token_ids.ids", "prompt"},
      {"token_ids", "prompt"},
      {"text", "prompt"},
  }};
  for (const auto& [ours, theirs] : names) {
    if (!field.starts_with(ours)) continue;
    const std::string_view rest = field.substr(ours.size());
    if (!rest.empty() && rest[0] != '[' && rest[0] != '.') continue;
    // Stop strings may have been one string.
    return theirs == "stop" ? "stop" : std::string(theirs).append(rest);
  }
  for (const std::string_view group : {"sampling.", "stopping."}) {
    if (field.starts_with(group)) return std::string(field.substr(group.size()));
  }
  return std::string(field);
}

}  // namespace continuo::gateway::openai
