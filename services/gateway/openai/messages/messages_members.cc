// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/messages/messages_members.h"

namespace continuo::gateway::openai::messages {
namespace {

using enum Disposition;

constexpr std::string_view kCache = "prefixes are found by their content";
constexpr std::string_view kNoServer = "no tool runs at the server; list tools and run them";
constexpr std::string_view kUneditedHistory = "a conversation is what its messages say";

// Members that both routes have.
constexpr ObjectMember kModel = {"model", kDone, "may be left out where one model is served", ""},
                       kMessages = {"messages", kDone,
                                    "the conversation; a last message of the assistant is "
                                    "continued",
                                    ""},
                       kSystem = {"system", kDone, "a text, or text blocks, which are paragraphs",
                                  ""},
                       kTools = {"tools", kDone, "tools of one's own", ""},
                       kToolChoice = {"tool_choice", kDone, "auto, any, tool or none", ""},
                       kThinkingMember = {"thinking", kDone,
                                          "without it the model does not think, where the chat "
                                          "template can tell it",
                                          ""},
                       kOutputConfigMember = {"output_config", kDone, "effort and format", ""},
                       kOutputFormat = {"output_format", kDone, "a schema that the answer obeys",
                                        ""},
                       kCacheControl = {"cache_control", kHarmless, kCache, ""},
                       kBetas = {"betas", kHarmless, "members are known or not by their names", ""},
                       kContextManagement = {"context_management", kHarmless, kUneditedHistory, ""},
                       kMcpServers = {"mcp_servers", kRefused, kNoServer, "[[],{}]"};

constexpr ObjectMember kBodyMembers[] = {
    kModel,
    {"max_tokens", kDone, "needed; limit of the answer's tokens", ""},
    kMessages,
    kSystem,
    {"stop_sequences", kDone, "an array of texts", ""},
    {"stream", kDone, "server-sent events", ""},
    {"temperature", kDone, "0 to 100; 0 is greedy", ""},
    {"top_k", kDone, "0 is all tokens", ""},
    {"top_p", kDone, "0 to 1; 0 is the most likely token", ""},
    kTools,
    kToolChoice,
    kThinkingMember,
    kOutputConfigMember,
    kOutputFormat,
    {"metadata", kHarmless, "a label of the caller's", ""},
    {"user_profile_id", kHarmless, "a label of the caller's", ""},
    {"service_tier", kHarmless, "there is one tier", ""},
    {"speed", kHarmless, "there is one speed", ""},
    {"inference_geo", kHarmless, "there is one place", ""},
    kCacheControl,
    kBetas,
    kContextManagement,
    {"container", kRefused, "nothing runs at the server", "[{},[]]"},
    kMcpServers,
    {"thread", kRefused, "nothing is stored; send all messages", ""},
};
constexpr ObjectMember kCountMembers[] = {
    kModel,
    kMessages,
    kSystem,
    kTools,
    kToolChoice,
    kThinkingMember,
    kOutputConfigMember,
    kOutputFormat,
    kCacheControl,
    kBetas,
    kContextManagement,
    kMcpServers,
};
constexpr ObjectMember kMessageMembers[] = {
    {"role", kDone, "user, assistant, or system, which stays in its place", ""},
    {"content", kDone, "a text, or blocks", ""},
};
constexpr ObjectMember kType = {"type", kDone, "what the block is", ""};
constexpr ObjectMember kTextMembers[] = {
    kType,
    {"text", kDone, "blocks of a user in a row are lines", ""},
    kCacheControl,
    {"citations", kHarmless, "what an earlier answer cited", ""},
};
constexpr ObjectMember kDocumentMembers[] = {
    kType,
    {"source", kDone, "plain text", ""},
    {"title", kDone, "stands in front of the text", ""},
    {"context", kDone, "stands in front of the text", ""},
    kCacheControl,
    {"citations", kRefused, "answers cite nothing", R"([{},{"enabled":false}])"},
};
constexpr ObjectMember kSourceMembers[] = {
    {"type", kDone, "\"text\"", ""},
    {"data", kDone, "the text", ""},
    {"media_type", kRefused, "documents are plain text", R"(["text/plain"])"},
};
constexpr ObjectMember kToolResultMembers[] = {
    kType,
    {"tool_use_id", kDone, "the call that is answered", ""},
    {"content", kDone,
     "a text, or blocks of text, documents and references to tools; a message of its own", ""},
    {"is_error", kDone, "true: \"error\" stands in front", ""},
    kCacheControl,
};
constexpr ObjectMember kToolReferenceMembers[] = {
    kType,
    {"tool_name", kDone, "of a tool that a search has found; the model reads its name", ""},
    kCacheControl,
};
constexpr ObjectMember kToolUseMembers[] = {
    kType,
    {"id", kDone, "of the call", ""},
    {"name", kDone, "of the tool", ""},
    {"input", kDone, "an object; text behind a call is a message of its own", ""},
    kCacheControl,
    {"caller", kHarmless, "a call is the model's", ""},
};
constexpr ObjectMember kThinkingMembers[] = {
    kType,
    {"thinking", kDone, "thoughts of an earlier answer", ""},
    {"signature", kHarmless, "nothing needs one here", ""},
    kCacheControl,
};
constexpr ObjectMember kRedactedMembers[] = {
    kType,
    {"data", kHarmless, "can be read by nobody here", ""},
    kCacheControl,
};
constexpr ObjectMember kToolMembers[] = {
    {"type", kDone,
     "\"custom\" or nothing; other types, which bring no schema or run at Anthropic's servers, are "
     "skipped, and x-skipped-tools of the answer names them",
     ""},
    {"name", kDone, "of the tool", ""},
    {"description", kDone, "of the tool", ""},
    {"input_schema", kDone, "a JSON schema", ""},
    {"strict", kDone, "true: calls match the schema", ""},
    kCacheControl,
    {"input_examples", kHarmless, "the schema is what calls are made by", ""},
    {"eager_input_streaming", kHarmless, "calls come whole", ""},
    {"defer_loading", kHarmless, "the model sees every tool", ""},
    {"allowed_callers", kHarmless, "a call is the model's", ""},
};
constexpr ObjectMember kChoiceType = {"type", kDone, "\"auto\", \"any\", \"tool\" or \"none\"", ""};
constexpr ObjectMember kSingle = {"disable_parallel_tool_use", kDone,
                                  "the answer ends behind its first call", ""};
constexpr ObjectMember kChoiceMembers[] = {kChoiceType, kSingle};
constexpr ObjectMember kToolByNameMembers[] = {
    kChoiceType, kSingle, {"name", kDone, "of the tool", ""}};
constexpr ObjectMember kThinkingConfigMembers[] = {
    {"type", kDone, "\"enabled\", \"adaptive\" or \"disabled\"", ""},
    {"budget_tokens", kDone, "an integer; it is no limit", ""},
    {"display", kDone, "\"summarized\", or \"omitted\", which leaves thoughts out", ""},
};
constexpr ObjectMember kOutputConfigMembers[] = {
    {"effort", kDone, "the chat template's argument reasoning_effort, where it has one", ""},
    {"format", kDone, "as output_format", ""},
};
constexpr ObjectMember kFormatType = {"type", kDone, "\"json_schema\" or \"text\"", ""};
constexpr ObjectMember kTextFormatMembers[] = {kFormatType};
constexpr ObjectMember kSchemaFormatMembers[] = {
    kFormatType,
    {"schema", kDone, "what the answer obeys", ""},
    {"name", kHarmless, "a label of the caller's", ""},
};

}  // namespace

constinit const ObjectMembers kBody = {"/v1/messages", kBodyMembers};
constinit const ObjectMembers kCountBody = {"/v1/messages/count_tokens", kCountMembers};
constinit const ObjectMembers kMessage = {"`messages[]`", kMessageMembers};
constinit const ObjectMembers kText = {"`text` block", kTextMembers};
constinit const ObjectMembers kDocument = {"`document` block", kDocumentMembers};
constinit const ObjectMembers kDocumentSource = {"`source` of a document", kSourceMembers};
constinit const ObjectMembers kToolResult = {"`tool_result` block", kToolResultMembers};
constinit const ObjectMembers kToolReference = {"`tool_reference` block", kToolReferenceMembers};
constinit const ObjectMembers kToolUse = {"`tool_use` block", kToolUseMembers};
constinit const ObjectMembers kThinking = {"`thinking` block", kThinkingMembers};
constinit const ObjectMembers kRedactedThinking = {"`redacted_thinking` block", kRedactedMembers};
constinit const ObjectMembers kTool = {"`tools[]`", kToolMembers};
constinit const ObjectMembers kChoice = {"`tool_choice` auto, any or none", kChoiceMembers};
constinit const ObjectMembers kToolByName = {"`tool_choice` of a tool", kToolByNameMembers};
constinit const ObjectMembers kThinkingConfig = {"`thinking`", kThinkingConfigMembers};
constinit const ObjectMembers kOutputConfig = {"`output_config`", kOutputConfigMembers};
constinit const ObjectMembers kTextFormat = {"`output_format` of text", kTextFormatMembers};
constinit const ObjectMembers kSchemaFormat = {"`output_format` of a schema", kSchemaFormatMembers};

std::span<const ObjectMembers* const> Objects() {
  static constexpr const ObjectMembers* kObjects[] = {
      &kBody,          &kCountBody,      &kMessage,          &kText,
      &kDocument,      &kDocumentSource, &kToolUse,          &kToolResult,
      &kToolReference, &kThinking,       &kRedactedThinking, &kTool,
      &kChoice,        &kToolByName,     &kThinkingConfig,   &kOutputConfig,
      &kTextFormat,    &kSchemaFormat};
  return kObjects;
}

}  // namespace continuo::gateway::openai::messages
