// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of bodies of /v1/messages and /v1/messages/count_tokens, which are those that
// Anthropic's API reference and SDKs know. The tables decide what is rejected; the list in
// docs/http.md is made of them.

#include <span>

#include "services/gateway/openai/json/members.h"

namespace continuo::gateway::openai::messages {

extern const ObjectMembers kBody, kCountBody;
extern const ObjectMembers kMessage;
// Blocks of content, by their types.
extern const ObjectMembers kText, kDocument, kDocumentSource, kToolResult, kToolReference, kToolUse,
    kThinking, kRedactedThinking;
extern const ObjectMembers kTool;
// tool_choice, by its types.
extern const ObjectMembers kChoice, kToolByName;
extern const ObjectMembers kThinkingConfig, kOutputConfig;
// output_format and output_config.format, by their types.
extern const ObjectMembers kTextFormat, kSchemaFormat;

// All of them, in the order of the documents.
std::span<const ObjectMembers* const> Objects();

}  // namespace continuo::gateway::openai::messages
