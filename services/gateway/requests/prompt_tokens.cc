// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/prompt_tokens.h"

namespace continuo::gateway {
namespace {

constexpr int64_t kBytesPerToken = 4;

}  // namespace

int64_t EstimatePromptTokens(const v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return static_cast<int64_t>(request.text().size() + request.suffix().size()) /
                 kBytesPerToken +
             1;
    case v1::GenerateRequest::kTokenIds:
      return request.token_ids().ids_size();
    case v1::GenerateRequest::kConversation: {
      int64_t bytes = static_cast<int64_t>(request.conversation().template_arguments().size());
      for (const v1::ChatMessage& message : request.conversation().messages()) {
        bytes += static_cast<int64_t>(message.role().size() + message.content().size() +
                                      message.reasoning().size());
        for (const std::string& part : message.content_parts()) {
          bytes += static_cast<int64_t>(part.size()) + 1;
        }
      }
      for (const v1::Tool& tool : request.conversation().tools()) {
        bytes += static_cast<int64_t>(tool.ByteSizeLong());
      }
      return bytes / kBytesPerToken + 1;
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return 0;
}

int64_t EstimatePromptTokens(const v1::EmbedRequest& request) {
  int64_t tokens = 0;
  for (const v1::EmbedInput& input : request.inputs()) {
    tokens += input.has_text() ? static_cast<int64_t>(input.text().size()) / kBytesPerToken + 1
                               : input.token_ids().ids_size();
  }
  return tokens;
}

}  // namespace continuo::gateway
