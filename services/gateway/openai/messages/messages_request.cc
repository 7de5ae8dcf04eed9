// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_request.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/members.h"
#include "services/gateway/openai/json/tools_json.h"
#include "services/gateway/openai/messages/messages_members.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr int64_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

absl::StatusOr<std::string> TypeOf(const Json& block, const std::string& path) {
  if (!block.is_object()) return WrongType(path, "an object", block);
  std::string type;
  RETURN_IF_ERROR(NeedText(block, "type", path, &type));
  return type;
}

// Appends the text of a block of type "text".
absl::Status AppendTextBlock(const Json& block, const std::string& path, std::string* text) {
  RETURN_IF_ERROR(CheckObject(messages::kText, block, path));
  std::string piece;
  RETURN_IF_ERROR(NeedText(block, "text", path, &piece));
  text->append(piece);
  return absl::OkStatus();
}

// Appends a document whose source is plain text.
absl::Status AppendDocument(const Json& block, const std::string& path, std::string* text) {
  RETURN_IF_ERROR(CheckObject(messages::kDocument, block, path));
  const Json* const source = Find(block, "source");
  if (source == nullptr) return protocol::FieldError(path + ".source", "is needed");
  ASSIGN_OR_RETURN(const std::string type, TypeOf(*source, path + ".source"));
  if (type != "text") {
    return protocol::FieldError(path + ".source.type",
                                "only documents of the type \"text\" are supported");
  }
  RETURN_IF_ERROR(CheckObject(messages::kDocumentSource, *source, path + ".source"));
  std::string title, context, data;
  RETURN_IF_ERROR(ReadText(block, "title", path, &title));
  RETURN_IF_ERROR(ReadText(block, "context", path, &context));
  RETURN_IF_ERROR(NeedText(*source, "data", path + ".source", &data));
  std::string whole;
  for (const std::string& part : {title, context, data}) {
    if (!part.empty()) absl::StrAppend(&whole, whole.empty() ? "" : "\n", part);
  }
  text->append(whole);
  return absl::OkStatus();
}

// Reads content that is a text or text blocks. With `references`, blocks may name tools that a
// search has found: their names are lines of the text, and are appended there with their places.
using References = std::vector<std::pair<std::string, std::string>>;
absl::Status ReadTextContent(const Json& content, const std::string& path, std::string* text,
                             References* references = nullptr) {
  if (content.is_string()) {
    *text = content.get<std::string>();
    return absl::OkStatus();
  }
  if (!content.is_array()) return WrongType(path, "a string or an array of blocks", content);
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    ASSIGN_OR_RETURN(const std::string type, TypeOf(content[i], place));
    if (i > 0) text->append("\n");
    if (type == "document") {
      RETURN_IF_ERROR(AppendDocument(content[i], place, text));
    } else if (type == "tool_reference" && references != nullptr) {
      RETURN_IF_ERROR(CheckObject(messages::kToolReference, content[i], place));
      std::string name;
      RETURN_IF_ERROR(NeedText(content[i], "tool_name", place, &name));
      text->append(name);
      references->emplace_back(place + ".tool_name", std::move(name));
    } else if (type != "text") {
      return protocol::FieldError(place + ".type",
                                  "only blocks of the type \"text\" are supported");
    } else {
      RETURN_IF_ERROR(AppendTextBlock(content[i], place, text));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSystem(const Json& body, v1::Conversation* conversation) {
  const Json* const system = Find(body, "system");
  if (system == nullptr) return absl::OkStatus();
  v1::ChatMessage message;
  message.set_role("system");
  // Several blocks are paragraphs.
  if (system->is_array()) {
    for (size_t i = 0; i < system->size(); ++i) {
      const std::string place = absl::StrCat("system[", i, "]");
      ASSIGN_OR_RETURN(const std::string type, TypeOf((*system)[i], place));
      if (type != "text") {
        return protocol::FieldError(place + ".type", "only the type \"text\" is supported");
      }
      if (!message.content().empty()) message.mutable_content()->append("\n\n");
      RETURN_IF_ERROR(AppendTextBlock((*system)[i], place, message.mutable_content()));
    }
  } else {
    RETURN_IF_ERROR(ReadTextContent(*system, "system", message.mutable_content()));
  }
  if (!message.content().empty()) *conversation->add_messages() = std::move(message);
  return absl::OkStatus();
}

absl::Status ReadToolResult(const Json& block, const std::string& path, v1::ChatMessage* message,
                            References* references) {
  RETURN_IF_ERROR(CheckObject(messages::kToolResult, block, path));
  message->set_role("tool");
  RETURN_IF_ERROR(NeedText(block, "tool_use_id", path, message->mutable_tool_call_id()));
  if (const Json* const content = Find(block, "content"); content != nullptr) {
    RETURN_IF_ERROR(
        ReadTextContent(*content, path + ".content", message->mutable_content(), references));
  }
  const Json* const is_error = Find(block, "is_error");
  if (is_error == nullptr) return absl::OkStatus();
  if (!is_error->is_boolean()) return WrongType(path + ".is_error", "a boolean", *is_error);
  // Templates have no place for it, and the model ought to know.
  if (is_error->get<bool>()) {
    message->set_content(
        absl::StrCat("error", message->content().empty() ? "" : ": ", message->content()));
  }
  return absl::OkStatus();
}

// Reads the blocks of a user. Results of tools are messages of their own, in the order of the
// blocks.
absl::Status ReadUserBlocks(const Json& content, const std::string& path,
                            v1::Conversation* conversation, References* references) {
  v1::ChatMessage* text = nullptr;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    ASSIGN_OR_RETURN(const std::string type, TypeOf(content[i], place));
    if (type == "tool_result") {
      RETURN_IF_ERROR(ReadToolResult(content[i], place, conversation->add_messages(), references));
      text = nullptr;
      continue;
    }
    if (type != "text" && type != "document") {
      return protocol::FieldError(
          place + ".type",
          "only \"text\", \"tool_result\" and \"document\" are supported of a user");
    }
    if (text == nullptr) {
      text = conversation->add_messages();
      text->set_role("user");
    } else {
      text->mutable_content()->append("\n");
    }
    if (type == "text") {
      RETURN_IF_ERROR(AppendTextBlock(content[i], place, text->mutable_content()));
    } else {
      RETURN_IF_ERROR(AppendDocument(content[i], place, text->mutable_content()));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadToolUse(const WrittenValue& block, const std::string& path, v1::ToolCall* call) {
  RETURN_IF_ERROR(CheckObject(messages::kToolUse, *block.json, path));
  RETURN_IF_ERROR(NeedText(*block.json, "id", path, call->mutable_id()));
  RETURN_IF_ERROR(NeedText(*block.json, "name", path, call->mutable_name()));
  const WrittenValue input = block.Member("input");
  if (input.json == nullptr) return protocol::FieldError(path + ".input", "is needed");
  if (!input.json->is_object()) return WrongType(path + ".input", "an object", *input.json);
  call->set_arguments(std::string(input.text));
  return absl::OkStatus();
}

// Text behind calls is a message of its own: templates write calls behind the text.
absl::Status ReadAssistantBlocks(const WrittenValue& content, const std::string& path,
                                 v1::Conversation* conversation) {
  v1::ChatMessage* message = conversation->add_messages();
  message->set_role("assistant");
  const std::vector<WrittenValue> blocks = content.Elements();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    const Json& block = *blocks[i].json;
    ASSIGN_OR_RETURN(const std::string type, TypeOf(block, place));
    if (type != "tool_use" && message->tool_calls_size() > 0) {
      message = conversation->add_messages();
      message->set_role("assistant");
    }
    if (type == "text") {
      RETURN_IF_ERROR(AppendTextBlock(block, place, message->mutable_content()));
    } else if (type == "tool_use") {
      RETURN_IF_ERROR(ReadToolUse(blocks[i], place, message->add_tool_calls()));
    } else if (type == "thinking") {
      RETURN_IF_ERROR(CheckObject(messages::kThinking, block, place));
      std::string piece;
      RETURN_IF_ERROR(NeedText(block, "thinking", place, &piece));
      message->mutable_reasoning()->append(piece);
    } else if (type == "redacted_thinking") {  // can be read by nobody here
      RETURN_IF_ERROR(CheckObject(messages::kRedactedThinking, block, place));
    } else {
      return protocol::FieldError(
          place + ".type",
          "only \"text\", \"tool_use\" and \"thinking\" are supported of an assistant");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadMessage(const WrittenValue& value, const std::string& path,
                         v1::Conversation* conversation, References* references) {
  if (!value.json->is_object()) return WrongType(path, "an object", *value.json);
  RETURN_IF_ERROR(CheckObject(messages::kMessage, *value.json, path));
  std::string role;
  RETURN_IF_ERROR(NeedText(*value.json, "role", path, &role));
  if (role != "user" && role != "assistant" && role != "system") {
    return protocol::FieldError(path + ".role", "must be \"user\", \"assistant\" or \"system\"");
  }
  const WrittenValue content = value.Member("content");
  const std::string place = path + ".content";
  if (content.json == nullptr) return protocol::FieldError(place, "is needed");
  if (content.json->is_array() && role == "user") {
    if (content.json->empty()) return protocol::FieldError(place, "is empty");
    return ReadUserBlocks(*content.json, place, conversation, references);
  }
  if (content.json->is_array() && role == "assistant") {
    return ReadAssistantBlocks(content, place, conversation);
  }
  v1::ChatMessage& message = *conversation->add_messages();
  message.set_role(role);
  return ReadTextContent(*content.json, place, message.mutable_content());
}

// A last message of the assistant is the beginning of the answer.
absl::Status ReadAllMessages(const WrittenValue& body, v1::Conversation* conversation,
                             References* references) {
  const WrittenValue messages = body.Member("messages");
  if (messages.json == nullptr) return protocol::FieldError("messages", "is needed");
  if (!messages.json->is_array()) return WrongType("messages", "an array", *messages.json);
  if (messages.json->empty()) return protocol::FieldError("messages", "is empty");
  const std::vector<WrittenValue> elements = messages.Elements();
  for (size_t i = 0; i < elements.size(); ++i) {
    RETURN_IF_ERROR(
        ReadMessage(elements[i], absl::StrCat("messages[", i, "]"), conversation, references));
  }
  const v1::ChatMessage& last = *conversation->messages().rbegin();
  if (last.role() == "assistant") {
    if (!last.tool_calls().empty()) {
      return protocol::FieldError("messages", "end with a tool_use that has no tool_result");
    }
    conversation->set_continue_final_message(true);
  }
  return absl::OkStatus();
}

absl::Status ReadTool(const WrittenValue& value, int place, v1::Conversation* conversation,
                      MessagesTools* tools) {
  const std::string path = absl::StrCat("tools[", place, "]");
  if (!value.json->is_object()) return WrongType(path, "an object", *value.json);
  std::string type = "custom";
  RETURN_IF_ERROR(ReadText(*value.json, "type", path, &type));
  if (type != "custom") {
    // Its schema is in Anthropic's models alone, or it runs at their servers.
    tools->skipped.push_back(std::move(type));
    return absl::OkStatus();
  }
  tools->places.push_back(place);
  v1::Tool* const tool = conversation->add_tools();
  RETURN_IF_ERROR(CheckObject(messages::kTool, *value.json, path));
  RETURN_IF_ERROR(NeedText(*value.json, "name", path, tool->mutable_name()));
  if (tool->name().empty()) return protocol::FieldError(path + ".name", "is empty");
  RETURN_IF_ERROR(ReadText(*value.json, "description", path, tool->mutable_description()));
  const WrittenValue schema = value.Member("input_schema");
  if (schema.json == nullptr) return protocol::FieldError(path + ".input_schema", "is needed");
  if (!schema.json->is_object())
    return WrongType(path + ".input_schema", "an object", *schema.json);
  tool->set_parameters(std::string(schema.text));
  const Json* const strict = Find(*value.json, "strict");
  if (strict == nullptr) return absl::OkStatus();
  if (!strict->is_boolean()) return WrongType(path + ".strict", "a boolean", *strict);
  tool->set_strict(strict->get<bool>());
  return absl::OkStatus();
}

absl::Status ReadToolChoice(const Json& body, v1::Conversation* conversation) {
  const Json* const choice = Find(body, "tool_choice");
  if (choice == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string type, TypeOf(*choice, "tool_choice"));
  RETURN_IF_ERROR(CheckObject(type == "tool" ? messages::kToolByName : messages::kChoice, *choice,
                              "tool_choice"));
  v1::ToolChoice& parsed = *conversation->mutable_tool_choice();
  if (type == "none") {
    parsed.set_mode(v1::ToolChoice::MODE_NONE);
  } else if (type == "any" || type == "tool") {
    parsed.set_mode(v1::ToolChoice::MODE_REQUIRED);
  } else if (type == "auto") {
    parsed.set_mode(v1::ToolChoice::MODE_AUTO);
  } else {
    return protocol::FieldError("tool_choice.type",
                                "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  if (type == "tool") {
    RETURN_IF_ERROR(NeedText(*choice, "name", "tool_choice", parsed.mutable_name()));
    const auto is_named = [&](const v1::Tool& tool) { return tool.name() == parsed.name(); };
    if (!std::ranges::any_of(conversation->tools(), is_named)) {
      return protocol::FieldError("tool_choice.name",
                                  "is not the name of a tool that can be called here");
    }
  }
  const Json* const disable = Find(*choice, "disable_parallel_tool_use");
  if (disable == nullptr) return absl::OkStatus();
  if (!disable->is_boolean()) {
    return WrongType("tool_choice.disable_parallel_tool_use", "a boolean", *disable);
  }
  parsed.set_single_call(disable->get<bool>() && !conversation->tools().empty());
  return absl::OkStatus();
}

absl::Status ReadAllTools(const WrittenValue& body, v1::Conversation* conversation,
                          MessagesTools* read) {
  const WrittenValue tools = body.Member("tools");
  if (tools.json != nullptr) {
    if (!tools.json->is_array()) return WrongType("tools", "an array", *tools.json);
    const std::vector<WrittenValue> elements = tools.Elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      RETURN_IF_ERROR(ReadTool(elements[i], static_cast<int>(i), conversation, read));
    }
  }
  return ReadToolChoice(*body.json, conversation);
}

// Reads "thinking" and "output_config.effort", which are arguments of the template. Without
// "thinking" the model is not to think, as with Anthropic's.
absl::Status ReadThinking(const Json& body, v1::Conversation* conversation, bool* shows) {
  Json arguments = Json::object();
  bool thinks = false;
  if (const Json* const thinking = Find(body, "thinking"); thinking != nullptr) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*thinking, "thinking"));
    RETURN_IF_ERROR(CheckObject(messages::kThinkingConfig, *thinking, "thinking"));
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      return protocol::FieldError("thinking.type",
                                  "must be \"enabled\", \"adaptive\" or \"disabled\"");
    }
    thinks = type != "disabled";
    const Json* const budget = Find(*thinking, "budget_tokens");
    if (budget != nullptr && !IntegerOf(*budget).has_value()) {
      return WrongType("thinking.budget_tokens", "an integer", *budget);
    }
    std::string display = "summarized";
    RETURN_IF_ERROR(ReadText(*thinking, "display", "thinking", &display));
    if (display != "summarized" && display != "omitted" && display != "full") {
      return protocol::FieldError("thinking.display", "must be \"summarized\" or \"omitted\"");
    }
    *shows = thinks && display != "omitted";
  }
  for (const char* name : {"enable_thinking", "thinking"}) arguments[name] = thinks;
  if (const Json* const config = Find(body, "output_config"); config != nullptr) {
    if (!config->is_object()) return WrongType("output_config", "an object", *config);
    RETURN_IF_ERROR(CheckObject(messages::kOutputConfig, *config, "output_config"));
    std::string effort;
    RETURN_IF_ERROR(ReadText(*config, "effort", "output_config", &effort));
    if (!effort.empty()) arguments["reasoning_effort"] = effort;
  }
  conversation->set_template_arguments(arguments.dump());
  return absl::OkStatus();
}

// Reads the schema of "output_format", or of output_config's "format".
absl::Status ReadFormat(const WrittenValue& body, v1::GenerateRequest* request,
                        std::string* member) {
  const auto read = [request, member](const WrittenValue& format,
                                      const std::string& path) -> absl::Status {
    if (format.json == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*format.json, path));
    if (type == "text") return CheckObject(messages::kTextFormat, *format.json, path);
    if (type != "json_schema") {
      return protocol::FieldError(path + ".type", "must be \"json_schema\" or \"text\"");
    }
    RETURN_IF_ERROR(CheckObject(messages::kSchemaFormat, *format.json, path));
    const WrittenValue schema = format.Member("schema");
    if (schema.json == nullptr) return protocol::FieldError(path + ".schema", "is needed");
    if (!schema.json->is_object()) return WrongType(path + ".schema", "an object", *schema.json);
    if (request->has_constraint()) {
      return protocol::FieldError(path, "is not possible beside output_format");
    }
    request->mutable_constraint()->set_json_schema(std::string(schema.text));
    *member = path;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(read(body.Member("output_format"), "output_format"));
  const WrittenValue config = body.Member("output_config");
  if (config.json == nullptr || !config.json->is_object()) return absl::OkStatus();
  return read(config.Member("format"), "output_config.format");
}

absl::Status ReadLimits(const Json& body, v1::GenerateRequest* request) {
  std::optional<int64_t> max_tokens, top_k;
  RETURN_IF_ERROR(ReadInteger(body, "max_tokens", 1, kMaxUint32, &max_tokens));
  if (!max_tokens.has_value()) return protocol::FieldError("max_tokens", "is needed");
  request->mutable_stopping()->set_max_tokens(static_cast<uint32_t>(*max_tokens));
  v1::Sampling& sampling = *request->mutable_sampling();
  std::optional<float> temperature, top_p;
  RETURN_IF_ERROR(Read(body, "temperature", &temperature));
  RETURN_IF_ERROR(Read(body, "top_p", &top_p));
  RETURN_IF_ERROR(ReadInteger(body, "top_k", 0, std::numeric_limits<int32_t>::max(), &top_k));
  if (temperature.has_value()) sampling.set_temperature(*temperature);
  if (top_p.has_value()) sampling.set_top_p(*top_p);
  if (top_k.has_value()) sampling.set_top_k(static_cast<uint32_t>(*top_k));
  const Json* const stops = Find(body, "stop_sequences");
  if (stops == nullptr) return absl::OkStatus();
  if (!stops->is_array()) return WrongType("stop_sequences", "an array of strings", *stops);
  for (size_t i = 0; i < stops->size(); ++i) {
    if (!(*stops)[i].is_string()) {
      return WrongType(absl::StrCat("stop_sequences[", i, "]"), "a string", (*stops)[i]);
    }
    request->mutable_stopping()->add_strings((*stops)[i].get<std::string>());
  }
  return absl::OkStatus();
}

// A reference is to one of the tools. Those that were left out may have any names.
absl::Status CheckReferences(const References& references, const v1::Conversation& conversation,
                             const MessagesTools& tools) {
  if (!tools.skipped.empty()) return absl::OkStatus();
  absl::flat_hash_set<std::string_view> names;
  for (const v1::Tool& tool : conversation.tools()) names.insert(tool.name());
  for (const auto& [place, name] : references) {
    if (!names.contains(name)) {
      return protocol::FieldError(place, "is not the name of one of the tools");
    }
  }
  return absl::OkStatus();
}

// Reads what the prompt is made of.
absl::Status ReadPrompt(const WrittenValue& body, v1::Conversation* conversation,
                        MessagesTools* tools, bool* shows_thinking) {
  References references;
  RETURN_IF_ERROR(ReadSystem(*body.json, conversation));
  RETURN_IF_ERROR(ReadAllMessages(body, conversation, &references));
  RETURN_IF_ERROR(ReadAllTools(body, conversation, tools));
  RETURN_IF_ERROR(CheckReferences(references, *conversation, *tools));
  return ReadThinking(*body.json, conversation, shows_thinking);
}

}  // namespace

absl::StatusOr<MessagesCall> ParseMessages(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(messages::kBody, json, ""));
  const WrittenValue body = {&json, text};
  MessagesCall call;
  std::optional<std::string> model;
  std::optional<bool> stream;
  RETURN_IF_ERROR(Read(json, "model", &model));
  RETURN_IF_ERROR(Read(json, "stream", &stream));
  call.request.set_model(model.value_or(""));
  call.stream = stream.value_or(false);
  RETURN_IF_ERROR(ReadLimits(json, &call.request));
  RETURN_IF_ERROR(
      ReadPrompt(body, call.request.mutable_conversation(), &call.tools, &call.shows_thinking));
  RETURN_IF_ERROR(ReadFormat(body, &call.request, &call.format_member));
  return call;
}

absl::StatusOr<CountTokensCall> ParseCountTokens(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  RETURN_IF_ERROR(CheckObject(messages::kCountBody, json, ""));
  CountTokensCall call;
  std::optional<std::string> model;
  RETURN_IF_ERROR(Read(json, "model", &model));
  call.request.set_model(model.value_or(""));
  bool shows_thinking = false;
  const WrittenValue body = {&json, text};
  RETURN_IF_ERROR(
      ReadPrompt(body, call.request.mutable_conversation(), &call.tools, &shows_thinking));
  // It is part of no prompt, and an error of it would be one of the generation, too.
  v1::GenerateRequest unused;
  std::string format_member;
  RETURN_IF_ERROR(ReadFormat(body, &unused, &format_member));
  return call;
}

}  // namespace continuo::gateway::openai
