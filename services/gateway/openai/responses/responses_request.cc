// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_request.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/json_text.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/request_json.h"
#include "services/gateway/openai/json/tool_choice_json.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/gateway/openai/responses/input_items.h"
#include "services/gateway/openai/responses/responses_members.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

absl::Status ReadFlag(const Json& object, const char* name, const std::string& path, bool* value) {
  const Json* const json = Find(object, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_boolean()) return WrongType(absl::StrCat(path, ".", name), "a boolean", *json);
  *value = json->get<bool>();
  return absl::OkStatus();
}

absl::Status ReadTool(const WrittenValue& value, int place, ResponsesCall* call) {
  const std::string path = absl::StrCat("tools[", place, "]");
  if (!value.json->is_object()) return WrongType(path, "an object", *value.json);
  std::string type;
  RETURN_IF_ERROR(ReadText(*value.json, "type", path, &type));
  if (type.empty()) return protocol::FieldError(path + ".type", "is needed");
  if (type != "function") {
    call->skipped_tools.push_back(std::move(type));
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckObject(responses::kFunction, *value.json, path));
  v1::Tool& tool = *call->request.mutable_conversation()->add_tools();
  call->tool_places.push_back(place);
  RETURN_IF_ERROR(ReadText(*value.json, "name", path, tool.mutable_name()));
  if (tool.name().empty()) return protocol::FieldError(path + ".name", "is needed");
  RETURN_IF_ERROR(ReadText(*value.json, "description", path, tool.mutable_description()));
  const WrittenValue parameters = value.Member("parameters");
  if (parameters.json != nullptr) {
    if (!parameters.json->is_object()) {
      return WrongType(path + ".parameters", "an object", *parameters.json);
    }
    tool.set_parameters(std::string(parameters.text));
  }
  bool strict = false;
  RETURN_IF_ERROR(ReadFlag(*value.json, "strict", path, &strict));
  tool.set_strict(strict);
  return absl::OkStatus();
}

absl::Status ReadTools(const WrittenValue& body, ResponsesCall* call) {
  v1::Conversation& conversation = *call->request.mutable_conversation();
  const WrittenValue tools = body.Member("tools");
  if (tools.json != nullptr) {
    if (!tools.json->is_array()) return WrongType("tools", "an array", *tools.json);
    const std::vector<WrittenValue> elements = tools.Elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      RETURN_IF_ERROR(ReadTool(elements[i], static_cast<int>(i), call));
    }
  }
  return ReadToolChoice(*body.json, FunctionForm::kBeside, &conversation, &call->tool_places);
}

// Reads "text": the format of the answer, and how long it is to be.
absl::Status ReadFormat(const WrittenValue& body, v1::GenerateRequest* request, Json* arguments) {
  const WrittenValue text = body.Member("text");
  if (text.json == nullptr) return absl::OkStatus();
  if (!text.json->is_object()) return WrongType("text", "an object", *text.json);
  RETURN_IF_ERROR(CheckObject(responses::kText, *text.json, "text"));
  std::string verbosity;
  RETURN_IF_ERROR(ReadText(*text.json, "verbosity", "text", &verbosity));
  if (!verbosity.empty()) (*arguments)["verbosity"] = verbosity;
  const WrittenValue format = text.Member("format");
  if (format.json == nullptr) return absl::OkStatus();
  constexpr char kPath[] = "text.format";
  if (!format.json->is_object()) return WrongType(kPath, "an object", *format.json);
  std::string type;
  RETURN_IF_ERROR(ReadText(*format.json, "type", kPath, &type));
  if (type == "text" || type == "json_object") {
    RETURN_IF_ERROR(CheckObject(responses::kPlainFormat, *format.json, kPath));
    if (type == "json_object") request->mutable_constraint()->set_json_object(true);
    return absl::OkStatus();
  }
  if (type != "json_schema") {
    return protocol::FieldError("text.format.type",
                                "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  RETURN_IF_ERROR(CheckObject(responses::kSchemaFormat, *format.json, kPath));
  const WrittenValue schema = format.Member("schema");
  if (schema.json == nullptr) return protocol::FieldError("text.format.schema", "is needed");
  if (!schema.json->is_object()) {
    return WrongType("text.format.schema", "an object", *schema.json);
  }
  request->mutable_constraint()->set_json_schema(std::string(schema.text));
  return absl::OkStatus();
}

absl::Status ReadReasoning(const Json& body, Json* arguments) {
  const Json* const reasoning = Find(body, "reasoning");
  if (reasoning == nullptr) return absl::OkStatus();
  if (!reasoning->is_object()) return WrongType("reasoning", "an object", *reasoning);
  RETURN_IF_ERROR(CheckObject(responses::kReasoningConfig, *reasoning, "reasoning"));
  std::string effort;
  RETURN_IF_ERROR(ReadText(*reasoning, "effort", "reasoning", &effort));
  if (effort.empty()) return absl::OkStatus();
  (*arguments)["reasoning_effort"] = effort;
  if (effort == "none") {
    for (const char* name : {"enable_thinking", "thinking"}) (*arguments)[name] = false;
  }
  return absl::OkStatus();
}

absl::Status ReadInclude(const Json& body, ResponsesForm* form) {
  const Json* const include = Find(body, "include");
  if (include == nullptr) return absl::OkStatus();
  if (!include->is_array()) return WrongType("include", "an array of strings", *include);
  for (size_t i = 0; i < include->size(); ++i) {
    const std::string path = absl::StrCat("include[", i, "]");
    if (!(*include)[i].is_string()) return WrongType(path, "a string", (*include)[i]);
    const std::string what = (*include)[i].get<std::string>();
    if (what == "message.output_text.logprobs") {
      return protocol::FieldError(path,
                                  "is not supported; /v1/chat/completions has log-probabilities");
    }
    // These are of tools that no answer has.
    constexpr std::string_view kOfTools[] = {"file_search_call.results",
                                             "web_search_call.results",
                                             "web_search_call.action.sources",
                                             "message.input_image.image_url",
                                             "computer_call_output.output.image_url",
                                             "code_interpreter_call.outputs"};
    if (what != "reasoning.encrypted_content" &&
        std::ranges::find(kOfTools, what) == std::end(kOfTools)) {
      return protocol::FieldError(path, "is no part of a response that is known");
    }
    form->encodes_reasoning = form->encodes_reasoning || what == "reasoning.encrypted_content";
  }
  return absl::OkStatus();
}

absl::Status ReadStreamOptions(const Json& body, ResponsesForm* form) {
  const Json* const options = Find(body, "stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  RETURN_IF_ERROR(CheckObject(responses::kStreamOptions, *options, "stream_options"));
  return ReadNested(*options, "stream_options", "include_event_ids", &form->event_ids);
}

absl::Status ReadLimits(const Json& body, v1::GenerateRequest* request) {
  std::optional<int64_t> max_tokens;
  constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
  RETURN_IF_ERROR(ReadInteger(body, "max_output_tokens", 1, kMaxUint32, &max_tokens));
  if (max_tokens.has_value()) {
    request->mutable_stopping()->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  }
  std::optional<float> temperature, top_p, presence, frequency;
  RETURN_IF_ERROR(Read(body, "temperature", &temperature));
  RETURN_IF_ERROR(Read(body, "top_p", &top_p));
  RETURN_IF_ERROR(Read(body, "presence_penalty", &presence));
  RETURN_IF_ERROR(Read(body, "frequency_penalty", &frequency));
  v1::Sampling& sampling = *request->mutable_sampling();
  if (temperature.has_value()) sampling.set_temperature(*temperature);
  if (top_p.has_value()) sampling.set_top_p(*top_p);
  if (presence.has_value()) sampling.set_presence_penalty(*presence);
  if (frequency.has_value()) sampling.set_frequency_penalty(*frequency);
  return absl::OkStatus();
}

// Checks members that answers repeat: labels, and OpenAI's limits of metadata.
absl::Status CheckRepeated(const Json& body) {
  constexpr size_t kMaxPairs = 16, kMaxLabelBytes = 4 * 512;
  constexpr std::ptrdiff_t kMaxNameCharacters = 64, kMaxValueCharacters = 512;
  const auto num_characters = [](const std::string& text) {
    return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
  };
  for (const char* name : {"prompt_cache_key", "safety_identifier", "user"}) {
    std::optional<std::string> label;
    RETURN_IF_ERROR(Read(body, name, &label));
    if (label.value_or("").size() > kMaxLabelBytes) {
      return protocol::FieldError(name, absl::StrCat("is over ", kMaxLabelBytes, " bytes"));
    }
  }
  std::optional<int64_t> max_tool_calls;
  RETURN_IF_ERROR(
      ReadInteger(body, "max_tool_calls", 0, std::numeric_limits<int32_t>::max(), &max_tool_calls));
  const Json* const metadata = Find(body, "metadata");
  if (metadata == nullptr) return absl::OkStatus();
  if (!metadata->is_object()) return WrongType("metadata", "an object", *metadata);
  if (metadata->size() > kMaxPairs) {
    return protocol::FieldError(
        "metadata", absl::StrCat("has ", metadata->size(), " members, the limit is ", kMaxPairs));
  }
  for (const auto& [name, value] : metadata->items()) {
    if (value.is_string() && num_characters(name) <= kMaxNameCharacters &&
        num_characters(value.get_ref<const std::string&>()) <= kMaxValueCharacters) {
      continue;
    }
    return protocol::FieldError("metadata",
                                "must have names of 64 characters and texts of 512 at most");
  }
  return absl::OkStatus();
}

// The functions among the tools, with null for what they do not say.
std::string RepeatTools(const WrittenValue& tools) {
  std::string text = "[";
  if (tools.json != nullptr) {
    for (const WrittenValue& tool : tools.Elements()) {
      if (*Find(*tool.json, "type") != "function") continue;
      absl::StrAppend(&text, text.size() == 1 ? "" : ",",
                      std::string(tool.text.substr(0, tool.text.rfind('}'))));
      for (const char* name : {"description", "parameters", "strict"}) {
        if (!tool.json->contains(name)) absl::StrAppend(&text, ",\"", name, "\":null");
      }
      text.push_back('}');
    }
  }
  return text.append("]");
}

// The members of a response that repeat those of the request: the client's own numbers and order
// of members, on one line, as an event's data needs it.
std::string Repeat(const WrittenValue& body) {
  const auto texts = MemberTexts(body.text);
  const auto member = [&](const char* name) {
    const auto text = texts.find(name);
    return WrittenValue{Find(*body.json, name),
                        text == texts.end() ? std::string_view() : text->second};
  };
  std::string all;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!all.empty()) all.push_back(',');
    all.append("\"").append(name).append("\":").append(value);
  };
  const auto given = [](const WrittenValue& value, std::string_view fallback) {
    return std::string(value.json == nullptr ? fallback : value.text);
  };
  const auto inside = [&](const char* outer, const char* name, std::string_view fallback) {
    const WrittenValue object = member(outer);
    return object.json == nullptr ? std::string(fallback) : given(object.Member(name), fallback);
  };
  add("background", "false");
  add("previous_response_id", "null");
  for (const char* name : {"instructions", "max_output_tokens", "max_tool_calls",
                           "prompt_cache_key", "safety_identifier", "user"}) {
    add(name, given(member(name), "null"));
  }
  add("metadata", given(member("metadata"), "{}"));
  add("parallel_tool_calls", given(member("parallel_tool_calls"), "true"));
  add("reasoning",
      absl::StrCat("{\"effort\":", inside("reasoning", "effort", "null"), ",\"summary\":null}"));
  add("service_tier", "\"default\"");
  add("store", "false");
  add("temperature", given(member("temperature"), "1.0"));
  const std::string verbosity = inside("text", "verbosity", "");
  add("text", absl::StrCat("{\"format\":", inside("text", "format", R"({"type":"text"})"),
                           verbosity.empty() ? "" : ",\"verbosity\":", verbosity, "}"));
  add("tool_choice", given(member("tool_choice"), "\"auto\""));
  add("tools", RepeatTools(member("tools")));
  add("top_logprobs", "0");
  add("top_p", given(member("top_p"), "1.0"));
  for (const char* name : {"presence_penalty", "frequency_penalty"}) {
    add(name, given(member(name), "0"));
  }
  add("truncation", "\"disabled\"");
  return OneLine(all);
}

}  // namespace

absl::StatusOr<ResponsesCall> ParseResponses(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(responses::kBody, json, ""));
  const WrittenValue body = {&json, text};
  ResponsesCall call;
  std::optional<std::string> model;
  std::optional<bool> stream;
  RETURN_IF_ERROR(Read(json, "model", &model));
  RETURN_IF_ERROR(Read(json, "stream", &stream));
  call.request.set_model(model.value_or(""));
  call.form.stream = stream.value_or(false);
  RETURN_IF_ERROR(ReadStreamOptions(json, &call.form));
  RETURN_IF_ERROR(ReadLimits(json, &call.request));
  RETURN_IF_ERROR(ReadInput(json, call.request.mutable_conversation()));
  RETURN_IF_ERROR(ReadTools(body, &call));
  Json arguments = Json::object();
  RETURN_IF_ERROR(ReadReasoning(json, &arguments));
  RETURN_IF_ERROR(ReadFormat(body, &call.request, &arguments));
  if (!arguments.empty()) {
    call.request.mutable_conversation()->set_template_arguments(arguments.dump());
  }
  RETURN_IF_ERROR(ReadInclude(json, &call.form));
  RETURN_IF_ERROR(CheckRepeated(json));
  call.form.repeated = Repeat(body);
  return call;
}

std::string ResponsesParamOf(const std::vector<int>& tool_places, std::string_view field) {
  const std::pair<std::string_view, std::string_view> ours_and_theirs[] = {
      {"stopping.max_tokens", "max_output_tokens"},
      {"conversation.tool_choice", "tool_choice"},
      {"conversation.tools", "tools"},
      {"conversation.template_arguments", "reasoning.effort"},
      {"conversation", "input"},
      {"constraint.json_schema", "text.format.schema"},
      {"constraint", "text.format"},
  };
  for (const auto& [ours, theirs] : ours_and_theirs) {
    if (!field.starts_with(ours)) continue;
    const std::string_view rest = field.substr(ours.size());
    if (!rest.empty() && rest[0] != '[' && rest[0] != '.') continue;
    if (theirs == "input" || theirs.starts_with("text.")) return std::string(theirs);
    if (theirs == "tools") return absl::StrCat("tools", ToolPlaceOf(tool_places, rest));
    return absl::StrCat(std::string(theirs), std::string(rest));
  }
  for (const std::string_view group : {"sampling.", "stopping.", "output."}) {
    if (field.starts_with(group)) return std::string(field.substr(group.size()));
  }
  return std::string(field);
}

}  // namespace continuo::gateway::openai
