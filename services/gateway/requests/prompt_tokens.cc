// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/prompt_tokens.h"

namespace continuo::gateway {
namespace {

constexpr int64_t kBytesPerToken = 4;
constexpr size_t kTemplateBytes = 320;  // around a pair, about

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
    const size_t bytes = input.has_pair()
                             ? input.pair().query().size() + input.pair().document().size() +
                                   request.instruction().size() + kTemplateBytes
                             : input.text().size();
    tokens += input.has_token_ids() ? input.token_ids().ids_size()
                                    : static_cast<int64_t>(bytes) / kBytesPerToken + 1;
  }
  return tokens;
}

}  // namespace continuo::gateway
