// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/responses/responses_members.h"

#include "services/gateway/openai/json/tool_choice_json.h"

namespace continuo::gateway::openai::responses {
namespace {

using enum Disposition;

constexpr std::string_view kLabel = "a label of the caller's, which comes back";
constexpr std::string_view kPrefixes = "prefixes are found by their content";
constexpr std::string_view kNothingStored =
    "nothing is stored; send the whole conversation as input";
constexpr std::string_view kUneditedHistory = "a conversation is what its items say";
constexpr std::string_view kWholeThoughts = "thoughts come whole";

constexpr ObjectMember kBodyMembers[] = {
    {"model", kDone, "may be left out where one model is served", ""},
    {"input", kDone,
     "a text, or items; what an assistant thought, said and called in a row is one message", ""},
    {"instructions", kDone, "a system message in front", ""},
    {"max_output_tokens", kDone, "limit of the answer's tokens", ""},
    {"temperature", kDone, "0 to 100; 0 is greedy", ""},
    {"top_p", kDone, "0 to 1; 0 is the most likely token", ""},
    {"presence_penalty", kDone, "-2 to 2", ""},
    {"frequency_penalty", kDone, "-2 to 2", ""},
    {"stream", kDone, "server-sent events", ""},
    {"stream_options", kDone, "an object", ""},
    {"tools", kDone,
     "functions; other types are skipped, since they run elsewhere, and x-skipped-tools of the "
     "answer names them",
     ""},
    {"tool_choice", kDone,
     "\"none\", \"auto\", \"required\", a function, or allowed_tools, which leaves out the others",
     ""},
    {"parallel_tool_calls", kDone, "false: the answer ends behind its first call", ""},
    {"text", kDone, "format and verbosity", ""},
    {"reasoning", kDone, "effort", ""},
    {"include", kDone,
     "reasoning.encrypted_content: thoughts in base64, to be sent back; what tools of a server "
     "answer has no effect; log-probabilities and unknown names are refused",
     ""},
    {"metadata", kDone, "at most 16 texts of 512 characters, which come back", ""},
    {"max_tool_calls", kDone, "an integer, which comes back; no tool runs here", ""},
    {"user", kDone, kLabel, ""},
    {"safety_identifier", kDone, kLabel, ""},
    {"prompt_cache_key", kDone, kLabel, ""},
    {"prompt_cache_options", kHarmless, kPrefixes, ""},
    {"prompt_cache_retention", kHarmless, kPrefixes, ""},
    {"service_tier", kHarmless, "there is one tier", ""},
    {"client_metadata", kHarmless, "a label of the caller's", ""},
    {"context_management", kHarmless, kUneditedHistory, ""},
    {"store", kRefused, "nothing is stored, and the client sends the whole input", "[false]"},
    {"background", kRefused, "use stream", "[false]"},
    {"previous_response_id", kRefused, kNothingStored, ""},
    {"conversation", kRefused, kNothingStored, ""},
    {"prompt", kRefused, "nothing is stored; send instructions and input", ""},
    {"truncation", kRefused, "leave items out", R"(["disabled"])"},
    {"top_logprobs", kRefused, "/v1/chat/completions has log-probabilities", "[0]"},
    {"moderation", kRefused, "nothing is moderated", ""},
};
constexpr ObjectMember kId = {"id", kHarmless, "nothing is stored", ""};
constexpr ObjectMember kStatus = {"status", kHarmless, "an item is what it has", ""};
constexpr ObjectMember kCaller = {"caller", kHarmless, "a call is the model's", ""};
constexpr ObjectMember kItemType = {"type", kDone, "what the item is", ""};
constexpr ObjectMember kCallId = {"call_id", kDone, "joins a call and its output", ""};
constexpr ObjectMember kMessageMembers[] = {
    {"type", kDone, "\"message\" or nothing", ""},
    {"role", kDone, "user, assistant, system or developer, which is system", ""},
    {"content", kDone, "a text, or parts", ""},
    kId,
    kStatus,
    {"phase", kHarmless, "an answer's text is one", ""},
};
constexpr ObjectMember kFunctionCallMembers[] = {
    kItemType,
    kCallId,
    {"name", kDone, "of the function", ""},
    {"arguments", kDone, "the text of a JSON object", ""},
    kId,
    kStatus,
    kCaller,
    {"namespace", kHarmless, "functions are known by their names", ""},
    {"async", kHarmless, "outputs come with the input", ""},
};
constexpr ObjectMember kOutputMembers[] = {
    kItemType, kCallId, {"output", kDone, "a text, or parts", ""}, kId, kStatus, kCaller,
};
constexpr ObjectMember kReasoningMembers[] = {
    kItemType,
    {"content", kDone, "parts with the thoughts", ""},
    {"encrypted_content", kDone, "as answers have it; what others encrypted is left out", ""},
    {"summary", kDone, "parts, which stand for thoughts that cannot be read", ""},
    kId,
    kStatus,
};
constexpr ObjectMember kPartType = {"type", kDone, "what the part is", ""};
constexpr ObjectMember kTextPartMembers[] = {
    kPartType,
    {"text", kDone, "the text", ""},
    {"annotations", kHarmless, "what an earlier answer cited", ""},
    {"logprobs", kHarmless, "of an earlier answer", ""},
    {"prompt_cache_breakpoint", kHarmless, kPrefixes, ""},
};
constexpr ObjectMember kRefusalPartMembers[] = {
    kPartType,
    {"refusal", kDone, "the text of an earlier answer", ""},
};
constexpr ObjectMember kFunctionMembers[] = {
    {"type", kDone, "\"function\"", ""},
    {"name", kDone, "of the function", ""},
    {"description", kDone, "of the function", ""},
    {"parameters", kDone, "a JSON schema", ""},
    {"strict", kDone, "true: calls match the schema", ""},
    {"cache_control", kHarmless, kPrefixes, ""},
    {"defer_loading", kHarmless, "the model sees every function", ""},
    {"allowed_callers", kHarmless, "a call is the model's", ""},
};
constexpr ObjectMember kStreamOptionsMembers[] = {
    {"include_event_ids", kDone,
     "false: events have no id, and the stream cannot go on after a cut", ""},
    {"include_obfuscation", kRefused, "events are not padded", "[false]"},
};
constexpr ObjectMember kReasoningConfigMembers[] = {
    {"effort", kDone, "the chat template's argument reasoning_effort, where it has one", ""},
    {"summary", kHarmless, kWholeThoughts, ""},
    {"generate_summary", kHarmless, kWholeThoughts, ""},
    {"context", kHarmless, kUneditedHistory, ""},
};
constexpr ObjectMember kTextMembers[] = {
    {"format", kDone, "of the answer", ""},
    {"verbosity", kDone, "the chat template's argument of this name, where it has one", ""},
};
constexpr ObjectMember kFormatType = {"type", kDone, "\"text\", \"json_object\" or \"json_schema\"",
                                      ""};
constexpr ObjectMember kPlainFormatMembers[] = {kFormatType};
constexpr ObjectMember kSchemaFormatMembers[] = {
    kFormatType,
    {"schema", kDone, "what the answer obeys, strict or not", ""},
    {"strict", kHarmless, "the answer obeys its schema", ""},
    {"name", kHarmless, "a label of the caller's", ""},
    {"description", kHarmless, "write it into the schema", ""},
};

}  // namespace

constinit const ObjectMembers kBody = {"/v1/responses", kBodyMembers};
constinit const ObjectMembers kMessage = {"`message` item", kMessageMembers};
constinit const ObjectMembers kFunctionCall = {"`function_call` item", kFunctionCallMembers};
constinit const ObjectMembers kFunctionCallOutput = {"`function_call_output` item", kOutputMembers};
constinit const ObjectMembers kReasoning = {"`reasoning` item", kReasoningMembers};
constinit const ObjectMembers kTextPart = {"part of text", kTextPartMembers};
constinit const ObjectMembers kRefusalPart = {"`refusal` part", kRefusalPartMembers};
constinit const ObjectMembers kFunction = {"`function` of the tools", kFunctionMembers};
constinit const ObjectMembers kStreamOptions = {"`stream_options`", kStreamOptionsMembers};
constinit const ObjectMembers kReasoningConfig = {"`reasoning`", kReasoningConfigMembers};
constinit const ObjectMembers kText = {"`text`", kTextMembers};
constinit const ObjectMembers kPlainFormat = {"`text.format` text or json_object",
                                              kPlainFormatMembers};
constinit const ObjectMembers kSchemaFormat = {"`text.format` json_schema", kSchemaFormatMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kObjects[] = {&kBody,
                                                      &kMessage,
                                                      &kFunctionCall,
                                                      &kFunctionCallOutput,
                                                      &kReasoning,
                                                      &kTextPart,
                                                      &kRefusalPart,
                                                      &kFunction,
                                                      &kNamedChoice,
                                                      &kAllowedChoice,
                                                      &kAllowedTool,
                                                      &kStreamOptions,
                                                      &kReasoningConfig,
                                                      &kText,
                                                      &kPlainFormat,
                                                      &kSchemaFormat};
  return kObjects;
}

}  // namespace continuo::gateway::openai::responses
