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

TEST(EstimatePromptTokensTest, APairIsReadWithInstructionAndTemplate) {
  v1::EmbedRequest request;
  request.add_inputs()->set_text(std::string(400, 'x'));
  request.add_inputs()->mutable_token_ids()->add_ids(1);
  EXPECT_EQ(EstimatePromptTokens(request), 102);
  request.clear_inputs();
  for (int i = 0; i < 2; ++i) {
    v1::TextPair& pair = *request.add_inputs()->mutable_pair();
    pair.set_query(std::string(40, 'q'));
    pair.set_document(std::string(400, 'd'));
  }
  const int64_t plain = EstimatePromptTokens(request);
  EXPECT_GT(plain, 2 * 110);
  request.set_instruction(std::string(80, 'i'));
  EXPECT_EQ(EstimatePromptTokens(request), plain + 2 * 20);
}

}  // namespace
}  // namespace continuo::gateway
