// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/prompt_tokens.h"

#include <gtest/gtest.h>

#include <string>

namespace continuo::gateway {
namespace {

TEST(EstimatePromptTokensTest, IdsAreCountedAndTextIsFourBytesAToken) {
  v1::GenerateRequest request;
  EXPECT_EQ(EstimatePromptTokens(request), 0);
  request.set_text(std::string(400, 'x'));
  EXPECT_EQ(EstimatePromptTokens(request), 101);
  for (int i = 0; i < 7; ++i) request.mutable_token_ids()->add_ids(1);
  EXPECT_EQ(EstimatePromptTokens(request), 7);
  request.mutable_conversation()->add_messages()->set_content(std::string(4000, 'x'));
  EXPECT_EQ(EstimatePromptTokens(request), 1001);
}

}  // namespace
}  // namespace continuo::gateway
