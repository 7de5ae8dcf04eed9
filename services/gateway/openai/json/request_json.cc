// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/request_json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/chat_members.h"
#include "services/gateway/openai/json/constraint_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/prompt_json.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::gateway::openai {
namespace {

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
// OpenAI's default for completions; a chat may fill the rest of the context.
constexpr uint32_t kCompletionsMaxTokens = 16;
// Bounds the fields that each prompt of a call repeats, for all prompts together.
constexpr size_t kMaxRepeatedBytes = 1 << 20;

absl::Status ReadSeed(const Json& body, v1::Sampling* sampling) {
  const Json* const seed = Find(body, "seed");
  if (seed == nullptr) return absl::OkStatus();
  const std::optional<Integer> integer = IntegerOf(*seed);
  if (!integer.has_value()) return WrongType("seed", "an integer", *seed);
  // The parser gives what has more than 64 bits as a rounded number.
  const double most = integer->is_negative ? 0x1p63 : 0x1p64;
  if (seed->is_number_float() && std::abs(seed->get<double>()) >= most) {
    return protocol::FieldError(
        "seed", absl::StrCat("is ", seed->dump(),
                             ", must be from -9223372036854775808 to 18446744073709551615"));
  }
  // vLLM's and llama.cpp's clients write "another one each time" so.
  if (integer->is_negative && integer->magnitude == 1) return absl::OkStatus();
  // OpenAI's seeds have a sign; its two's complement is as good a seed.
  sampling->set_seed(integer->is_negative ? ~integer->magnitude + 1 : integer->magnitude);
  return absl::OkStatus();
}

// Reads an array of token ids at `name` into `ids`.
template <typename Ids>
absl::Status ReadIds(const Json& body, const char* name, Ids* ids) {
  const Json* const json = Find(body, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_array()) return WrongType(name, "an array of token ids", *json);
  for (size_t i = 0; i < json->size(); ++i) {
    ASSIGN_OR_RETURN(const uint32_t id, TokenIdAt(*json, i, name));
    ids->Add(id);
  }
  return absl::OkStatus();
}

absl::Status ReadBadWords(const Json& body, v1::Sampling* sampling) {
  const Json* const words = Find(body, "bad_words");
  if (words == nullptr) return absl::OkStatus();
  if (!words->is_array()) return WrongType("bad_words", "an array of strings", *words);
  for (size_t i = 0; i < words->size(); ++i) {
    const Json& word = (*words)[i];
    if (!word.is_string()) return WrongType(absl::StrCat("bad_words[", i, "]"), "a string", word);
    sampling->add_bad_words(word.get<std::string>());
  }
  return absl::OkStatus();
}

absl::Status ReadAllowedIds(const Json& body, v1::Sampling* sampling) {
  RETURN_IF_ERROR(ReadIds(body, "allowed_token_ids", sampling->mutable_allowed_token_ids()));
  if (Find(body, "allowed_token_ids") == nullptr || sampling->allowed_token_ids_size() > 0) {
    return absl::OkStatus();
  }
  return protocol::FieldError("allowed_token_ids", "is empty; leave it out to allow all");
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
  RETURN_IF_ERROR(ReadSeed(body, sampling));
  RETURN_IF_ERROR(ReadAllowedIds(body, sampling));
  RETURN_IF_ERROR(ReadBadWords(body, sampling));
  if (const Json* const bias = Find(body, "logit_bias"); bias != nullptr) {
    if (!bias->is_object()) return WrongType("logit_bias", "an object", *bias);
    for (const auto& [key, value] : bias->items()) {
      uint32_t id;
      // Of two spellings of an id one would be ignored.
      if (!absl::SimpleAtoi(key, &id) || key != absl::StrCat(id)) {
        return protocol::FieldError("logit_bias",
                                    "its keys must be token ids, from \"0\" to \"4294967295\"");
      }
      if (!value.is_number()) {
        return WrongType(absl::StrCat("logit_bias.", id), "a number", value);
      }
      (*sampling->mutable_logit_bias())[id] = value.get<float>();
    }
  }
  return absl::OkStatus();
}

absl::Status ReadStopping(const Json& body, v1::Stopping* stopping, ParamNames* names) {
  std::optional<int64_t> max_tokens, min_tokens;
  RETURN_IF_ERROR(ReadInteger(body, "max_tokens", -1, kMaxUint32, &max_tokens));
  // The newer name wins.
  RETURN_IF_ERROR(ReadInteger(body, "max_completion_tokens", -1, kMaxUint32, &max_tokens));
  names->max_completion_tokens = Find(body, "max_completion_tokens") != nullptr;
  // Other servers write "what the context leaves" as -1.
  if (max_tokens.value_or(-1) >= 0) stopping->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  RETURN_IF_ERROR(ReadInteger(body, "min_tokens", 0, kMaxUint32, &min_tokens));
  if (min_tokens.has_value()) stopping->set_min_tokens(static_cast<uint32_t>(*min_tokens));
  std::optional<bool> ignore_eos;
  RETURN_IF_ERROR(Read(body, "ignore_eos", &ignore_eos));
  stopping->set_ignore_eos(ignore_eos.value_or(false));
  RETURN_IF_ERROR(ReadIds(body, "stop_token_ids", stopping->mutable_token_ids()));
  std::optional<bool> include_stop, no_trim;
  RETURN_IF_ERROR(Read(body, "include_stop_str_in_output", &include_stop));
  RETURN_IF_ERROR(Read(body, "no_stop_trim", &no_trim));
  stopping->set_include_stop(include_stop.value_or(false) || no_trim.value_or(false));

  const Json* const stop = Find(body, "stop");
  if (stop == nullptr) return absl::OkStatus();
  if (stop->is_string()) {
    stopping->add_strings(stop->get<std::string>());
    return absl::OkStatus();
  }
  if (!stop->is_array()) return WrongType("stop", "a string or an array of strings", *stop);
  names->stop_is_array = true;
  for (size_t i = 0; i < stop->size(); ++i) {
    const Json& text = (*stop)[i];
    if (!text.is_string()) return WrongType(absl::StrCat("stop[", i, "]"), "a string", text);
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

absl::Status ReadStreamOptions(const Json& body, AnswerForm* form) {
  const Json* const options = Find(body, "stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  RETURN_IF_ERROR(CheckObject(chats::kStreamOptions, *options, "stream_options"));
  const auto read = [&](const char* name, bool* value) -> absl::Status {
    std::optional<bool> read;
    RETURN_IF_ERROR(ReadNested(*options, "stream_options", name, &read));
    *value = read.value_or(false);
    if (!*value || form->stream) return absl::OkStatus();
    return protocol::FieldError(absl::StrCat("stream_options.", name), "needs stream to be true");
  };
  // Without a stream there are no events, and nothing is missing.
  RETURN_IF_ERROR(ReadNested(*options, "stream_options", "include_event_ids", &form->event_ids));
  RETURN_IF_ERROR(read("include_usage", &form->include_usage));
  return read("continuous_usage_stats", &form->continuous_usage);
}

absl::Status ReadForm(const Json& body, AnswerForm* form) {
  std::optional<bool> stream, token_ids;
  RETURN_IF_ERROR(Read(body, "stream", &stream));
  form->stream = stream.value_or(false);
  RETURN_IF_ERROR(Read(body, "return_token_ids", &token_ids));
  form->token_ids = token_ids.value_or(false);
  return ReadStreamOptions(body, form);
}

absl::Status ReadTruncation(const Json& body, v1::GenerateRequest* request) {
  std::optional<int64_t> tokens;
  std::optional<std::string> side;
  RETURN_IF_ERROR(ReadInteger(body, "truncate_prompt_tokens", -1, kMaxUint32, &tokens));
  RETURN_IF_ERROR(Read(body, "truncation_side", &side));
  if (side.has_value() && *side != "left" && *side != "right") {
    return protocol::FieldError("truncation_side", "must be \"left\" or \"right\"");
  }
  if (!tokens.has_value()) return absl::OkStatus();  // the side is of nothing
  if (*tokens == 0) {
    return protocol::FieldError("truncate_prompt_tokens",
                                "is 0, must be at least 1, or -1 for what the context leaves");
  }
  request->mutable_truncation()->set_max_tokens(
      static_cast<uint32_t>(std::max<int64_t>(*tokens, 0)));
  request->mutable_truncation()->set_keep_first(side == "right");
  return absl::OkStatus();
}

// Reads "prompt_logprobs"; the form has been read.
absl::Status ReadPromptLogprobs(const Json& body, AnswerForm* form, v1::Output* output) {
  std::optional<int64_t> number;
  RETURN_IF_ERROR(ReadInteger(body, "prompt_logprobs", 0, protocol::kMaxLogprobs, &number));
  if (!number.has_value()) return absl::OkStatus();
  if (form->stream) {
    return protocol::FieldError("prompt_logprobs", "is not possible with stream");
  }
  form->prompt_logprobs = true;
  output->set_prompt_logprobs(static_cast<uint32_t>(*number));
  return absl::OkStatus();
}

// Reads "add_special_tokens", which has one value only.
absl::Status ReadAddSpecial(Endpoint endpoint, const Json& body) {
  std::optional<bool> add;
  RETURN_IF_ERROR(Read(body, "add_special_tokens", &add));
  const bool is_chat = endpoint == Endpoint::kChat;
  if (add.value_or(!is_chat) == !is_chat) return absl::OkStatus();
  return protocol::FieldError(
      "add_special_tokens",
      is_chat ? "is not supported other than as false; the chat template has the special tokens"
              : "is not supported other than as true; write the prompt as token ids");
}

// Reads what bears on scheduling and caching.
absl::Status ReadService(const Json& body, v1::GenerateRequest* request) {
  std::optional<std::string> salt;
  RETURN_IF_ERROR(Read(body, "cache_salt", &salt));
  if (salt.has_value()) request->mutable_cache()->set_salt(*salt);
  std::optional<bool> cache_prompt;
  RETURN_IF_ERROR(Read(body, "cache_prompt", &cache_prompt));
  if (!cache_prompt.value_or(true)) request->mutable_cache()->set_bypass(true);
  std::optional<int64_t> priority;
  RETURN_IF_ERROR(
      ReadInteger(body, "priority", -protocol::kMaxPriority, protocol::kMaxPriority, &priority));
  if (priority.has_value()) request->set_priority(static_cast<int32_t>(*priority));
  return absl::OkStatus();
}

// Reads "echo". The tokens of the prompt are requested where its text alone does not do.
absl::Status ReadEcho(const Json& body, const v1::GenerateRequest& common,
                      std::vector<v1::GenerateRequest>* requests, AnswerForm* form) {
  std::optional<bool> echo;
  RETURN_IF_ERROR(Read(body, "echo", &echo));
  form->echo = echo.value_or(false);
  if (!form->echo) return absl::OkStatus();
  const auto n = static_cast<size_t>(form->num_sequences);
  if (form->logprobs && form->prompt_logprobs &&
      common.output().prompt_logprobs() != common.output().logprobs()) {
    return protocol::FieldError("prompt_logprobs",
                                "must equal logprobs, which the echo has of the prompt");
  }
  for (v1::GenerateRequest& request : *requests) {
    // A prompt that is cut is echoed from the tokens that are left of it.
    const bool from_tokens = request.has_token_ids() || common.has_truncation();
    // Each choice repeats the prompt.
    if (n > 1 && (form->logprobs || from_tokens)) {
      return protocol::FieldError("n",
                                  "must be 1 where echo is of token ids, of a prompt that is cut, "
                                  "or together with logprobs");
    }
    if (n > 1 && n * request.text().size() > kMaxRepeatedBytes) {
      return protocol::FieldError(
          "n", absl::StrCat("asks for ", n, " copies of a prompt of ", request.text().size(),
                            " bytes by echo, the limit is ", kMaxRepeatedBytes, " bytes"));
    }
    form->echo_texts.push_back(from_tokens ? "" : request.text());
    v1::Output& output = *request.mutable_output();
    if (form->logprobs) {
      if (request.has_suffix()) {
        return protocol::FieldError("echo", "is not supported together with logprobs and suffix");
      }
      output.set_prompt_logprobs(common.output().logprobs());
    }
    output.set_prompt_tokens(form->logprobs || from_tokens);
  }
  return absl::OkStatus();
}

absl::Status ReadSuffix(const Json& body, std::vector<v1::GenerateRequest>* requests) {
  std::optional<std::string> suffix;
  RETURN_IF_ERROR(Read(body, "suffix", &suffix));
  // An empty one asks for nothing.
  if (suffix.value_or("").empty()) return absl::OkStatus();
  for (v1::GenerateRequest& request : *requests) {
    if (!request.has_text()) return protocol::FieldError("suffix", "needs a prompt that is text");
    request.set_suffix(*suffix);
  }
  return absl::OkStatus();
}

absl::Status ReadCompletionsOnly(const Json& body, std::vector<v1::GenerateRequest>* requests,
                                 AnswerForm* form, v1::GenerateRequest* common) {
  if (Find(body, "max_tokens") == nullptr && Find(body, "max_completion_tokens") == nullptr) {
    common->mutable_stopping()->set_max_tokens(kCompletionsMaxTokens);
  }
  std::optional<int64_t> best_of;
  RETURN_IF_ERROR(ReadInteger(body, "best_of", 1, kMaxChoices, &best_of));
  if (best_of.has_value() && *best_of != form->num_sequences) {
    return protocol::FieldError("best_of", "is supported only where it equals n");
  }
  RETURN_IF_ERROR(ReadPrompts(body, requests));
  RETURN_IF_ERROR(ReadSuffix(body, requests));
  return ReadEcho(body, *common, requests, form);
}

// Reads the arguments of the chat template. Members of the body that are one of them stand behind
// chat_template_kwargs. Values are passed on as the client wrote them, `text` being the body: a
// template sees the order of their members, and the worker checks their numbers.
absl::Status ReadTemplateArguments(const Json& body, std::string_view text,
                                   v1::Conversation* conversation) {
  const Json* const given = Find(body, "chat_template_kwargs");
  std::string members;
  if (given != nullptr) {
    if (!given->is_object()) return WrongType("chat_template_kwargs", "an object", *given);
    const std::string_view object = MemberText(text, "chat_template_kwargs");
    if (!given->empty()) members = object.substr(1, object.size() - 2);
  }
  const auto add = [&](const char* name, std::string_view value) {
    if (given != nullptr && given->contains(name)) return;
    absl::StrAppend(&members, members.empty() ? "\"" : ",\"", name, "\":", std::string(value));
  };
  std::optional<std::string> effort;
  RETURN_IF_ERROR(Read(body, "reasoning_effort", &effort));
  if (effort.has_value()) {
    add("reasoning_effort", MemberText(text, "reasoning_effort"));
    if (*effort == "none") {
      for (const char* name : {"enable_thinking", "thinking"}) add(name, "false");
    }
  }
  if (const Json* const documents = Find(body, "documents"); documents != nullptr) {
    if (!documents->is_array()) return WrongType("documents", "an array", *documents);
    add("documents", MemberText(text, "documents"));
  }
  if (!members.empty()) conversation->set_template_arguments(absl::StrCat("{", members, "}"));
  return absl::OkStatus();
}

absl::Status ReadChatOnly(const Json& body, std::string_view text, ParsedCall* call) {
  return ReadConversation(body, text, call->requests.emplace_back().mutable_conversation(),
                          &call->form.names.tool_places);
}

}  // namespace

absl::Status ReadConversation(const Json& body, std::string_view text,
                              v1::Conversation* conversation, std::vector<int>* tool_places) {
  std::optional<bool> continue_final, add_prompt;
  std::optional<std::string> chat_template;
  RETURN_IF_ERROR(Read(body, "continue_final_message", &continue_final));
  RETURN_IF_ERROR(Read(body, "add_generation_prompt", &add_prompt));
  RETURN_IF_ERROR(Read(body, "chat_template", &chat_template));
  conversation->set_chat_template(chat_template.value_or(""));
  RETURN_IF_ERROR(ReadTemplateArguments(body, text, conversation));
  RETURN_IF_ERROR(ReadMessages(body, conversation));
  RETURN_IF_ERROR(ReadTools(body, text, conversation, tool_places));
  if (continue_final.value_or(false)) conversation->set_continue_final_message(true);
  if (!add_prompt.has_value()) return absl::OkStatus();
  if (!conversation->continue_final_message()) {
    conversation->set_omit_generation_prompt(!*add_prompt);
  } else if (*add_prompt) {
    return protocol::FieldError("add_generation_prompt",
                                "must be false where the last message is continued");
  }
  return absl::OkStatus();
}

absl::StatusOr<ParsedCall> ParseCall(Endpoint endpoint, std::string_view body) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(body));
  RETURN_IF_ERROR(CheckMembers(endpoint, json));
  ParsedCall call;
  v1::GenerateRequest common;
  std::optional<std::string> model;
  RETURN_IF_ERROR(Read(json, "model", &model));
  common.set_model(model.value_or(""));
  RETURN_IF_ERROR(ReadSampling(json, common.mutable_sampling()));
  RETURN_IF_ERROR(ReadStopping(json, common.mutable_stopping(), &call.form.names));
  RETURN_IF_ERROR(ReadLogprobs(endpoint, json, common.mutable_output()));
  RETURN_IF_ERROR(ReadForm(json, &call.form));
  RETURN_IF_ERROR(ReadAddSpecial(endpoint, json));
  RETURN_IF_ERROR(ReadService(json, &common));
  RETURN_IF_ERROR(ReadTruncation(json, &common));
  v1::Constraint constraint;
  RETURN_IF_ERROR(ReadConstraint(json, body, &constraint, &call.form.names.constraint));
  if (!call.form.names.constraint.empty()) *common.mutable_constraint() = std::move(constraint);
  RETURN_IF_ERROR(ReadPromptLogprobs(json, &call.form, common.mutable_output()));
  // Usage in every event is counted by the ids.
  if (call.form.token_ids || call.form.continuous_usage) {
    common.mutable_output()->set_prompt_tokens(true);
  }
  call.form.endpoint = endpoint;
  call.form.names.endpoint = endpoint;
  call.form.logprobs = common.output().has_logprobs();
  if (common.sampling().has_num_sequences()) {
    call.form.num_sequences = static_cast<int>(common.sampling().num_sequences());
  }
  if (endpoint == Endpoint::kChat) {
    RETURN_IF_ERROR(ReadChatOnly(json, body, &call));
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

namespace {

// Returns the client's name for a part of the constraint.
std::string ConstraintParam(const std::string& member, std::string_view field) {
  const size_t element = field.find('[');
  if (element == field.npos) return member;
  return absl::StrCat(member, std::string(field.substr(element)));
}

}  // namespace

std::string ToolPlaceOf(const std::vector<int>& tool_places, std::string_view place) {
  size_t index = 0;
  const size_t end = place.find(']');
  if (!place.starts_with('[') || end == place.npos ||
      !absl::SimpleAtoi(absl::string_view(place.data() + 1, end - 1), &index) ||
      index >= tool_places.size()) {
    return std::string(place);
  }
  return absl::StrCat("[", tool_places[index], std::string(place.substr(end)));
}

std::string ParamOf(const ParamNames& names, std::string_view field) {
  if (names.as_written) return std::string(field);
  if (field.starts_with("constraint") && !names.constraint.empty()) {
    return ConstraintParam(names.constraint, field);
  }
  const bool chat = names.endpoint == Endpoint::kChat;
  const std::string prompt =
      names.prompt < 0 ? std::string("prompt") : absl::StrCat("prompt[", names.prompt, "]");
  const std::array<std::pair<std::string_view, std::string_view>, 16> ours_and_theirs = {{
      {"sampling.num_sequences", "n"},
      {"stopping.strings", "stop"},
      {"stopping.token_ids", "stop_token_ids"},
      {"stopping.max_tokens", names.max_completion_tokens ? "max_completion_tokens" : "max_tokens"},
      {"output.logprobs", chat ? "top_logprobs" : "logprobs"},
      {"cache.salt", "cache_salt"},
      {"truncation", "truncate_prompt_tokens"},
      {"conversation.chat_template", "chat_template"},
      {"conversation.template_arguments", "chat_template_kwargs"},
      {"conversation.messages", "messages"},
      {"conversation.tools", "tools"},
      {"conversation.tool_choice", "tool_choice"},
      {"conversation", "messages"},
      {"token_ids.ids", prompt},
      {"token_ids", names.endpoint == Endpoint::kDetokenize ? std::string_view("tokens") : prompt},
      {"text", prompt},
  }};
  for (const auto& [ours, theirs] : ours_and_theirs) {
    if (!field.starts_with(ours)) continue;
    std::string_view rest = field.substr(ours.size());
    if (!rest.empty() && rest[0] != '[' && rest[0] != '.') continue;
    const std::string placed =
        theirs == "tools" ? ToolPlaceOf(names.tool_places, rest) : std::string(rest);
    rest = placed;
    // Over HTTP what a tool or a call is has a level of its own.
    if (theirs == "tools" || theirs == "messages") {
      const size_t end = rest.rfind("].");
      if (end != rest.npos && (theirs == "tools" || rest.find(".tool_calls[") != rest.npos)) {
        return absl::StrCat(std::string(theirs), std::string(rest.substr(0, end + 2)), "function.",
                            std::string(rest.substr(end + 2)));
      }
    }
    // Stop strings may have been one string.
    return theirs == "stop" && !names.stop_is_array ? "stop" : std::string(theirs).append(rest);
  }
  for (const std::string_view group : {"sampling.", "stopping.", "output."}) {
    if (field.starts_with(group)) return std::string(field.substr(group.size()));
  }
  return std::string(field);
}

}  // namespace continuo::gateway::openai
