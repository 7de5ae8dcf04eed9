// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_request.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/gateway/openai/responses/input_items.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

// Members of a body that are read, or have no bearing on the answer.
constexpr auto kMembers = std::to_array<std::string_view>(
    {"model", "input", "instructions", "max_output_tokens", "temperature", "top_p", "stream",
     "stream_options", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning",
     "include", "metadata", "store", "truncation", "top_logprobs",
     // Labels, marks for caches, and limits of tools that run at a server.
     "user", "safety_identifier", "prompt_cache_key", "prompt_cache_options",
     "prompt_cache_retention", "service_tier", "max_tool_calls", "client_metadata",
     "context_management",
     // Refused unless they ask for nothing.
     "background", "previous_response_id", "conversation", "prompt", "moderation"});

absl::Status ReadFlag(const Json& object, const char* name, const std::string& path, bool* value) {
  const Json* const json = Find(object, name);
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_boolean()) return WrongType(absl::StrCat(path, ".", name), "a boolean", *json);
  *value = json->get<bool>();
  return absl::OkStatus();
}

// Members that ask for what a server without a store cannot do.
absl::Status RejectStored(const Json& body) {
  std::optional<bool> store, background;
  RETURN_IF_ERROR(Read(body, "store", &store));
  if (store.value_or(false)) {
    return protocol::FieldError("store",
                                "is not supported other than as false; nothing is stored, and the "
                                "client sends the whole input");
  }
  RETURN_IF_ERROR(Read(body, "background", &background));
  if (background.value_or(false)) {
    return protocol::FieldError("background", "is not supported other than as false; use stream");
  }
  const std::pair<const char*, const char*> refused[] = {
      {"previous_response_id", "nothing is stored; send the whole conversation as input"},
      {"conversation", "nothing is stored; send the whole conversation as input"},
      {"prompt", "nothing is stored; send instructions and input"},
      {"moderation", "nothing is moderated"}};
  for (const auto& [name, why] : refused) {
    if (Find(body, name) == nullptr) continue;
    return protocol::FieldError(name, absl::StrCat("is not supported; ", why));
  }
  std::optional<std::string> truncation;
  RETURN_IF_ERROR(Read(body, "truncation", &truncation));
  if (truncation.value_or("disabled") != "disabled") {
    return protocol::FieldError("truncation",
                                "is not supported other than as \"disabled\"; leave items out");
  }
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
  constexpr std::array<std::string_view, 8> kKnown = {
      "type",   "name",          "description",   "parameters",
      "strict", "cache_control", "defer_loading", "allowed_callers"};
  RETURN_IF_ERROR(CheckOnly(*value.json, path, kKnown));
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

absl::Status CheckIsTool(const v1::Conversation& conversation, const std::string& name,
                         const std::string& path) {
  const auto is_named = [&](const v1::Tool& tool) { return tool.name() == name; };
  if (std::ranges::any_of(conversation.tools(), is_named)) return absl::OkStatus();
  return protocol::FieldError(path, "is not the name of a function");
}

// Leaves out the tools that {"type": "allowed_tools"} does not name.
absl::Status ReadAllowedTools(const Json& choice, ResponsesCall* call) {
  v1::Conversation* const conversation = call->request.mutable_conversation();
  constexpr char kPath[] = "tool_choice";
  RETURN_IF_ERROR(
      CheckOnly(choice, kPath, std::array<std::string_view, 3>{"type", "mode", "tools"}));
  std::string mode;
  RETURN_IF_ERROR(ReadText(choice, "mode", kPath, &mode));
  if (mode != "auto" && mode != "required") {
    return protocol::FieldError("tool_choice.mode", "must be \"auto\" or \"required\"");
  }
  const Json* const tools = Find(choice, "tools");
  if (tools == nullptr) return protocol::FieldError("tool_choice.tools", "is needed");
  if (!tools->is_array()) return WrongType("tool_choice.tools", "an array", *tools);
  absl::flat_hash_set<std::string> known, names;
  for (const v1::Tool& tool : conversation->tools()) known.insert(tool.name());
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string place = absl::StrCat("tool_choice.tools[", i, "]");
    if (!(*tools)[i].is_object()) return WrongType(place, "an object", (*tools)[i]);
    std::string type = "function", name;
    RETURN_IF_ERROR(ReadText((*tools)[i], "type", place, &type));
    if (type != "function") continue;  // one that the model does not see
    RETURN_IF_ERROR(ReadText((*tools)[i], "name", place, &name));
    if (!known.contains(name)) {
      return protocol::FieldError(place + ".name", "is not the name of a function");
    }
    names.insert(std::move(name));
  }
  if (names.empty()) return protocol::FieldError("tool_choice.tools", "names no function");
  google::protobuf::RepeatedPtrField<v1::Tool> kept;
  std::vector<int> places;
  for (int i = 0; i < conversation->tools_size(); ++i) {
    if (!names.contains(conversation->tools(i).name())) continue;
    kept.Add()->Swap(conversation->mutable_tools(i));
    places.push_back(call->tool_places[static_cast<size_t>(i)]);
  }
  call->tool_places = std::move(places);
  conversation->mutable_tools()->Swap(&kept);
  conversation->mutable_tool_choice()->set_mode(mode == "auto" ? v1::ToolChoice::MODE_AUTO
                                                               : v1::ToolChoice::MODE_REQUIRED);
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Json& body, ResponsesCall* call) {
  v1::Conversation* const conversation = call->request.mutable_conversation();
  const Json* const choice = Find(body, "tool_choice");
  if (choice == nullptr) return absl::OkStatus();
  v1::ToolChoice& parsed = *conversation->mutable_tool_choice();
  if (choice->is_string()) {
    const std::string mode = choice->get<std::string>();
    if (mode == "auto") {
      parsed.set_mode(v1::ToolChoice::MODE_AUTO);
    } else if (mode == "none") {
      parsed.set_mode(v1::ToolChoice::MODE_NONE);
    } else if (mode == "required") {
      parsed.set_mode(v1::ToolChoice::MODE_REQUIRED);
    } else {
      return protocol::FieldError("tool_choice",
                                  "must be \"none\", \"auto\", \"required\" or an object");
    }
    return absl::OkStatus();
  }
  if (!choice->is_object()) return WrongType("tool_choice", "a string or an object", *choice);
  std::string type;
  RETURN_IF_ERROR(ReadText(*choice, "type", "tool_choice", &type));
  if (type == "allowed_tools") return ReadAllowedTools(*choice, call);
  if (type != "function") {
    return protocol::FieldError("tool_choice.type",
                                "only the types \"function\" and \"allowed_tools\" are supported");
  }
  RETURN_IF_ERROR(
      CheckOnly(*choice, "tool_choice", std::array<std::string_view, 2>{"type", "name"}));
  RETURN_IF_ERROR(ReadText(*choice, "name", "tool_choice", parsed.mutable_name()));
  RETURN_IF_ERROR(CheckIsTool(*conversation, parsed.name(), "tool_choice.name"));
  parsed.set_mode(v1::ToolChoice::MODE_REQUIRED);
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
  RETURN_IF_ERROR(ReadToolChoice(*body.json, call));
  std::optional<bool> parallel;
  RETURN_IF_ERROR(Read(*body.json, "parallel_tool_calls", &parallel));
  if (!parallel.value_or(true) && !conversation.tools().empty()) {
    conversation.mutable_tool_choice()->set_single_call(true);
  }
  return absl::OkStatus();
}

// Reads "text": the format of the answer, and how long it is to be.
absl::Status ReadFormat(const WrittenValue& body, v1::GenerateRequest* request, Json* arguments) {
  const WrittenValue text = body.Member("text");
  if (text.json == nullptr) return absl::OkStatus();
  if (!text.json->is_object()) return WrongType("text", "an object", *text.json);
  RETURN_IF_ERROR(
      CheckOnly(*text.json, "text", std::array<std::string_view, 2>{"format", "verbosity"}));
  std::string verbosity;
  RETURN_IF_ERROR(ReadText(*text.json, "verbosity", "text", &verbosity));
  if (!verbosity.empty()) (*arguments)["verbosity"] = verbosity;
  const WrittenValue format = text.Member("format");
  if (format.json == nullptr) return absl::OkStatus();
  constexpr char kPath[] = "text.format";
  if (!format.json->is_object()) return WrongType(kPath, "an object", *format.json);
  constexpr std::array<std::string_view, 5> kKnown = {"type", "name", "schema", "strict",
                                                      "description"};
  RETURN_IF_ERROR(CheckOnly(*format.json, kPath, kKnown));
  std::string type;
  RETURN_IF_ERROR(ReadText(*format.json, "type", kPath, &type));
  if (type == "text") return absl::OkStatus();
  if (type == "json_object") {
    request->mutable_constraint()->set_json_object(true);
    return absl::OkStatus();
  }
  if (type != "json_schema") {
    return protocol::FieldError("text.format.type",
                                "must be \"text\", \"json_object\" or \"json_schema\"");
  }
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
  // Thoughts come as they are, so there is no summary of them.
  constexpr std::array<std::string_view, 4> kKnown = {"effort", "summary", "generate_summary",
                                                      "context"};
  RETURN_IF_ERROR(CheckOnly(*reasoning, "reasoning", kKnown));
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
  std::optional<int64_t> top_logprobs;
  RETURN_IF_ERROR(ReadInteger(body, "top_logprobs", 0, 20, &top_logprobs));
  constexpr char kInstead[] = "is not supported; /v1/chat/completions has log-probabilities";
  if (top_logprobs.value_or(0) > 0) return protocol::FieldError("top_logprobs", kInstead);
  const Json* const include = Find(body, "include");
  if (include == nullptr) return absl::OkStatus();
  if (!include->is_array()) return WrongType("include", "an array of strings", *include);
  for (size_t i = 0; i < include->size(); ++i) {
    const std::string path = absl::StrCat("include[", i, "]");
    if (!(*include)[i].is_string()) return WrongType(path, "a string", (*include)[i]);
    const std::string what = (*include)[i].get<std::string>();
    if (what == "message.output_text.logprobs") return protocol::FieldError(path, kInstead);
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

absl::Status ReadStreamOptions(const Json& body) {
  const Json* const options = Find(body, "stream_options");
  if (options == nullptr) return absl::OkStatus();
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  RETURN_IF_ERROR(CheckOnly(*options, "stream_options",
                            std::array<std::string_view, 1>{"include_obfuscation"}));
  bool include = false;
  RETURN_IF_ERROR(ReadFlag(*options, "include_obfuscation", "stream_options", &include));
  if (!include) return absl::OkStatus();
  return protocol::FieldError("stream_options.include_obfuscation",
                              "is not supported other than as false; events are not padded");
}

absl::Status ReadLimits(const Json& body, v1::GenerateRequest* request) {
  std::optional<int64_t> max_tokens;
  constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();
  RETURN_IF_ERROR(ReadInteger(body, "max_output_tokens", 1, kMaxUint32, &max_tokens));
  if (max_tokens.has_value()) {
    request->mutable_stopping()->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  }
  std::optional<float> temperature, top_p;
  RETURN_IF_ERROR(Read(body, "temperature", &temperature));
  RETURN_IF_ERROR(Read(body, "top_p", &top_p));
  if (temperature.has_value()) request->mutable_sampling()->set_temperature(*temperature);
  if (top_p.has_value()) request->mutable_sampling()->set_top_p(*top_p);
  return absl::OkStatus();
}

// Checks members that answers repeat: labels, and OpenAI's limits of metadata.
absl::Status CheckRepeated(const Json& body) {
  constexpr size_t kMaxPairs = 16, kMaxNameBytes = 4 * 64, kMaxValueBytes = 4 * 512;
  for (const char* name : {"prompt_cache_key", "safety_identifier", "user"}) {
    std::optional<std::string> label;
    RETURN_IF_ERROR(Read(body, name, &label));
    if (label.value_or("").size() > kMaxValueBytes) {
      return protocol::FieldError(name, absl::StrCat("is over ", kMaxValueBytes, " bytes"));
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
    if (value.is_string() && name.size() <= kMaxNameBytes &&
        value.get_ref<const std::string&>().size() <= kMaxValueBytes) {
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

// The members of a response that repeat those of the request, as the client wrote them.
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
  add("presence_penalty", "0");
  add("frequency_penalty", "0");
  add("truncation", "\"disabled\"");
  return all;
}

}  // namespace

absl::StatusOr<ResponsesCall> ParseResponses(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  RETURN_IF_ERROR(CheckBody(json, "/v1/responses", kMembers));
  RETURN_IF_ERROR(RejectStored(json));
  const WrittenValue body = {&json, text};
  ResponsesCall call;
  std::optional<std::string> model;
  std::optional<bool> stream;
  RETURN_IF_ERROR(Read(json, "model", &model));
  RETURN_IF_ERROR(Read(json, "stream", &stream));
  call.request.set_model(model.value_or(""));
  call.form.stream = stream.value_or(false);
  RETURN_IF_ERROR(ReadStreamOptions(json));
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
    size_t place = 0;
    const size_t end = rest.find(']');
    if (theirs == "tools" && end != rest.npos &&
        absl::SimpleAtoi(absl::string_view(rest.data() + 1, end - 1), &place) &&
        place < tool_places.size()) {
      return absl::StrCat("tools[", tool_places[place], std::string(rest.substr(end)));
    }
    return absl::StrCat(std::string(theirs), std::string(rest));
  }
  for (const std::string_view group : {"sampling.", "stopping.", "output."}) {
    if (field.starts_with(group)) return std::string(field.substr(group.size()));
  }
  return std::string(field);
}

}  // namespace continuo::gateway::openai
