// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/chat_members.h"

namespace continuo::gateway::openai::chats {
namespace {

using enum Disposition;

constexpr std::string_view kOtherAnswer = "what answers of other servers have beside their text";
constexpr std::string_view kParsed = "what OpenAI's SDKs parsed of an answer";
constexpr std::string_view kInSchema = "write it into the schema";
constexpr std::string_view kGrammar = "write a grammar";

// Members that several objects have.
constexpr ObjectMember kFunctionType = {"type", kDone, "`function`; may be left out", ""},
                       kCacheControl = {"cache_control", kHarmless,
                                        "prefixes are found by their content", ""},
                       kCacheBreakpoint = {"prompt_cache_breakpoint", kHarmless,
                                           "prefixes are found by their content", ""};

constexpr ObjectMember kMessageMembers[] = {
    {"role", kDone, "needed; `developer` is `system`", ""},
    {"content", kDone, "a text, or parts; an assistant's message may be without", ""},
    {"name", kDone, "of who speaks, for the chat template", ""},
    {"tool_calls", kDone, "of an assistant", ""},
    {"tool_call_id", kDone, "of a tool's result", ""},
    {"reasoning_content", kDone, "an assistant's thoughts", ""},
    {"reasoning", kDone, "an assistant's thoughts", ""},
    {"refusal", kDone, "an assistant's content, where there is no other", ""},
    {"prefix", kDone, "true in the last message, an assistant's: the answer goes on with it", ""},
    {"annotations", kHarmless, kOtherAnswer, ""},
    {"phase", kHarmless, kOtherAnswer, ""},
    {"parsed", kHarmless, kParsed, ""},
    kCacheControl,
    {"function_call", kRefused, "write tool_calls", "[{},[]]"},
    {"audio", kRefused, "text is all that goes in", "[{},[]]"},
};
constexpr ObjectMember kTextPartMembers[] = {
    {"type", kDone, "`text`", ""},
    {"text", kDone, "needed", ""},
    kCacheControl,
    kCacheBreakpoint,
};
constexpr ObjectMember kRefusalPartMembers[] = {
    {"type", kDone, "`refusal`", ""},
    {"refusal", kDone, "needed; a text", ""},
    kCacheControl,
    kCacheBreakpoint,
};

constexpr ObjectMember kToolCallMembers[] = {
    {"id", kDone, "which its result names", ""},
    kFunctionType,
    {"function", kDone, "needed", ""},
    {"index", kHarmless, "calls are in the array's order", ""},
};
constexpr ObjectMember kCalledFunctionMembers[] = {
    {"name", kDone, "needed", ""},
    {"arguments", kDone, "a text with a JSON object", ""},
    {"parsed_arguments", kHarmless, kParsed, ""},
};
constexpr ObjectMember kToolMembers[] = {
    kFunctionType,
    {"function", kDone, "needed", ""},
    kCacheControl,
};
constexpr ObjectMember kToolFunctionMembers[] = {
    {"name", kDone, "needed", ""},
    {"description", kDone, "for the chat template", ""},
    {"parameters", kDone, "a JSON schema", ""},
    {"strict", kDone, "true: arguments match the schema whatever tool_choice says", ""},
};

constexpr ObjectMember kChoiceMembers[] = {
    kFunctionType,
    {"function", kDone, "needed; an object with the name", ""},
};
constexpr ObjectMember kFunctionNameMembers[] = {{"name", kDone, "of a function in tools", ""}};
constexpr ObjectMember kAllowedChoiceMembers[] = {
    {"type", kDone, "`allowed_tools`", ""},
    {"allowed_tools", kDone, "needed", ""},
};
constexpr ObjectMember kAllowedToolsMembers[] = {
    {"mode", kDone, "`auto` or `required`", ""},
    {"tools", kDone, "the functions that may be called", ""},
};

constexpr ObjectMember kStreamOptionsMembers[] = {
    {"include_usage", kDone, "a last event has the usage", ""},
    {"continuous_usage_stats", kDone, "each event has the usage so far", ""},
    {"include_event_ids", kDone,
     "false: events have no id, and the stream cannot go on after a cut", ""},
    {"include_obfuscation", kRefused, "events are not padded", "[false]"},
};

constexpr ObjectMember kTextFormatMembers[] = {{"type", kDone, "`text`", ""}};
constexpr ObjectMember kObjectFormatMembers[] = {
    {"type", kDone, "`json_object`, or `json` as TGI has it", ""},
    {"schema", kDone, "a schema, as llama.cpp's server has it", ""},
    {"value", kDone, "a schema or a text with one, as TGI has it", ""},
};
constexpr ObjectMember kSchemaFormatMembers[] = {
    {"type", kDone, "`json_schema`", ""},
    {"json_schema", kDone, "an object with the schema", ""},
    {"schema", kDone, "the schema itself, as llama.cpp's server has it", ""},
    {"value", kDone, "as json_schema, as TGI has it", ""},
};
constexpr ObjectMember kNamedSchemaMembers[] = {
    {"schema", kDone, "needed", ""},
    {"strict", kDone, "answers match the schema whether or not it is set", ""},
    {"name", kHarmless, "a label of the caller's", ""},
    {"description", kHarmless, "a label of the caller's", ""},
};
constexpr ObjectMember kRegexFormatMembers[] = {
    {"type", kDone, "`regex`, as TGI has it", ""},
    {"value", kDone, "a regular expression", ""},
    {"pattern", kDone, "a regular expression", ""},
};
constexpr ObjectMember kStructuredOutputsMembers[] = {
    {"json", kDone, "a schema, or a text with one", ""},
    {"regex", kDone, "a regular expression", ""},
    {"choice", kDone, "an array of texts", ""},
    {"grammar", kDone, "a grammar in Lark", ""},
    {"json_object", kDone, "true: any JSON object", ""},
    {"disable_fallback", kHarmless, "there is one library", ""},
    {"disable_any_whitespace", kRefused, kInSchema, "[false]"},
    {"disable_additional_properties", kRefused, kInSchema, "[false]"},
    {"whitespace_pattern", kRefused, kGrammar, ""},
    {"structural_tag", kRefused, kGrammar, ""},
};

}  // namespace

constinit const ObjectMembers kMessage = {"`messages[]`", kMessageMembers};
constinit const ObjectMembers kTextPart = {"a part of the type `text`", kTextPartMembers};
constinit const ObjectMembers kRefusalPart = {"a part of the type `refusal`", kRefusalPartMembers};
constinit const ObjectMembers kToolCall = {"`tool_calls[]`", kToolCallMembers};
constinit const ObjectMembers kCalledFunction = {"`tool_calls[].function`", kCalledFunctionMembers};
constinit const ObjectMembers kTool = {"`tools[]`", kToolMembers};
constinit const ObjectMembers kToolFunction = {"`tools[].function`", kToolFunctionMembers};
constinit const ObjectMembers kChoice = {"`tool_choice` of a function, `allowed_tools.tools[]`",
                                         kChoiceMembers};
constinit const ObjectMembers kChosenFunction = {"`function` of a choice", kFunctionNameMembers};
constinit const ObjectMembers kAllowedChoice = {"`tool_choice` of `allowed_tools`",
                                                kAllowedChoiceMembers};
constinit const ObjectMembers kAllowedTools = {"`tool_choice.allowed_tools`", kAllowedToolsMembers};
constinit const ObjectMembers kStreamOptions = {"`stream_options`", kStreamOptionsMembers};
constinit const ObjectMembers kTextFormat = {"`response_format` of `text`", kTextFormatMembers};
constinit const ObjectMembers kObjectFormat = {"`response_format` of `json_object`",
                                               kObjectFormatMembers};
constinit const ObjectMembers kSchemaFormat = {"`response_format` of `json_schema`",
                                               kSchemaFormatMembers};
constinit const ObjectMembers kNamedSchema = {"`response_format.json_schema`", kNamedSchemaMembers};
constinit const ObjectMembers kRegexFormat = {"`response_format` of `regex`", kRegexFormatMembers};
constinit const ObjectMembers kStructuredOutputs = {"`structured_outputs`",
                                                    kStructuredOutputsMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kObjects[] = {
      &kMessage,      &kTextPart,      &kRefusalPart,      &kToolCall,       &kCalledFunction,
      &kTool,         &kToolFunction,  &kChoice,           &kChosenFunction, &kAllowedChoice,
      &kAllowedTools, &kStreamOptions, &kTextFormat,       &kObjectFormat,   &kSchemaFormat,
      &kNamedSchema,  &kRegexFormat,   &kStructuredOutputs};
  return kObjects;
}

}  // namespace continuo::gateway::openai::chats
