// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/prompt_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> Drafts(std::vector<int32_t> prompt, std::vector<int32_t> answer,
                            int most = 4) {
  LiveRequest request;
  request.request.prompt = std::move(prompt);
  Sequence s;
  s.request = &request;
  s.answer = std::move(answer);
  std::vector<int32_t> drafts = {99};
  PromptLookup().Propose(s, most, drafts);
  return drafts;
}

TEST(PromptLookupTest, ProposesWhatFollowedTheLastTokensInThePrompt) {
  EXPECT_THAT(Drafts({1, 2, 3, 4, 5, 6, 7}, {9, 2, 3}), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(Drafts({1, 2, 3, 4, 5, 6, 7}, {9, 2, 3}, 2), ElementsAre(4, 5));
}

TEST(PromptLookupTest, OneTokenInCommonIsNotEnough) {
  EXPECT_THAT(Drafts({1, 2, 3, 4}, {9, 3}), IsEmpty());
  EXPECT_THAT(Drafts({1}, {}), IsEmpty());
  EXPECT_THAT(Drafts({1, 2, 3}, {4, 5, 6}), IsEmpty());
}

TEST(PromptLookupTest, TheLongestMatchWinsThenTheLatest) {
  EXPECT_THAT(Drafts({1, 2, 3, 40, 2, 3, 41, 7, 7}, {1, 2, 3}, 1), ElementsAre(40));
  EXPECT_THAT(Drafts({5, 2, 3, 40, 6, 2, 3, 41, 7}, {2, 3}, 1), ElementsAre(41));
}

TEST(PromptLookupTest, AMatchMayLieAcrossPromptAndAnswer) {
  EXPECT_THAT(Drafts({8, 1, 2}, {3, 4, 5, 2, 3}, 2), ElementsAre(4, 5));
}

TEST(PromptLookupTest, RepetitionIsExpectedToGoOn) {
  EXPECT_THAT(Drafts({9, 1, 2, 3}, {1, 2, 3}, 8), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(Drafts({4, 4}, {4}, 3), ElementsAre(4, 4, 4));
}

TEST(PromptLookupTest, OnlyTheWindowIsSearched) {
  const auto prompt = [](int size) {
    std::vector<int32_t> ids(static_cast<size_t>(size), 7);
    std::iota(ids.begin(), ids.begin() + 4, 1);
    return ids;
  };
  EXPECT_THAT(Drafts(prompt(PromptLookup::kWindow + 10), {8, 1, 2, 3}), IsEmpty());
  EXPECT_THAT(Drafts(prompt(PromptLookup::kWindow - 10), {8, 1, 2, 3}, 1), ElementsAre(4));
}

}  // namespace
}  // namespace continuo::engine
