// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;

// A few workers of one model, each half full, to be changed by a test.
struct Fleet {
  explicit Fleet(int size) : loads(size), candidates(size) {
    for (int i = 0; i < size; ++i) {
      loads[i] = {.address = "10.0.0." + std::to_string(i) + ":1",
                  .model = "m",
                  .fingerprint = "F",
                  .tokenizer_fingerprint = "T",
                  .state = WorkerState::kServing,
                  .used_kv_blocks = 50,
                  .total_kv_blocks = 100,
                  .block_size_tokens = 16,
                  .max_running_requests = 64};
      candidates[i].load = &loads[i];
    }
  }
  // How often each is picked, of `draws`.
  std::map<size_t, int> Draw(const RouteKey& key, int draws) {
    std::mt19937_64 random(1);
    std::map<size_t, int> hits;
    for (int i = 0; i < draws; ++i) hits[*LeastLoadedOfTwo(key, candidates, random)]++;
    return hits;
  }
  std::vector<WorkerLoad> loads;
  std::vector<Candidate> candidates;
};

TEST(LeastLoadedOfTwoTest, ABusyWorkerAmongFourIsPickedOnceInSixteenDraws) {
  Fleet fleet(4);
  fleet.loads[3].pending_prompt_tokens = 100000;
  const auto hits = fleet.Draw({.model = "m"}, 100000);
  // Both draws have to hit it: 1/16; the standard deviation of 100,000 draws is 0.08 %.
  EXPECT_NEAR(hits.at(3) / 1e5, 0.0625, 0.004);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(hits.at(i) / 1e5, 0.3125, 0.008);
}

TEST(LeastLoadedOfTwoTest, EqualWorkersGetEqualShares) {
  Fleet fleet(4);
  for (const auto& [worker, count] : fleet.Draw({.model = "m"}, 100000)) {
    EXPECT_NEAR(count / 1e5, 0.25, 0.007) << worker;
  }
}

TEST(LeastLoadedOfTwoTest, TheFullerCacheGetsFewerRequests) {
  Fleet fleet(2);
  fleet.loads[0].used_kv_blocks = 90;
  fleet.loads[1].used_kv_blocks = 10;
  const auto hits = fleet.Draw({.model = "m"}, 10000);
  EXPECT_NEAR(hits.at(0) / 1e4, 0.25, 0.02);
}

TEST(LeastLoadedOfTwoTest, ASlowWorkerAmongFourIsPickedOnceInSixteenDraws) {
  Fleet fleet(4);
  fleet.loads[3].slow = true;
  fleet.loads[3].used_kv_blocks = 0;
  EXPECT_NEAR(fleet.Draw({.model = "m"}, 100000).at(3) / 1e5, 0.0625, 0.004);
}

TEST(LeastLoadedOfTwoTest, NobodyIsPickedWhereNobodyMay) {
  Fleet fleet(2);
  std::mt19937_64 random(1);
  const std::vector<std::string> refused = {fleet.loads[0].address, fleet.loads[1].address};
  EXPECT_FALSE(LeastLoadedOfTwo({.model = "m", .refused = refused}, fleet.candidates, random));
  EXPECT_FALSE(LeastLoadedOfTwo({.model = "m"}, {}, random));
}

TEST(LeastLoadedOfTwoTest, AWorkerThatFailedIsAvoidedWhileAnotherIsLeft) {
  Fleet fleet(3);
  const std::vector<Failure> failures = {{fleet.loads[0].address, 1}, {fleet.loads[2].address, 1}};
  EXPECT_THAT(fleet.Draw({.model = "m", .failures = failures}, 200),
              ElementsAre(std::pair(1, 200)));
  const std::vector<Failure> all = {
      {fleet.loads[0].address, 2}, {fleet.loads[1].address, 1}, {fleet.loads[2].address, 1}};
  EXPECT_EQ(fleet.Draw({.model = "m", .failures = all}, 200).size(), 3);
}

TEST(PreferenceTest, FingerprintGoesBeforeTokenizerAndNothingElseWillDo) {
  Fleet fleet(4);
  fleet.loads[1].fingerprint = "G";
  fleet.loads[2].fingerprint = "G";
  fleet.loads[2].tokenizer_fingerprint = "U";
  const RouteKey key = {.model = "m", .fingerprint = "F", .tokenizer_fingerprint = "T"};
  EXPECT_EQ(Preference(key, fleet.loads[0]), 0);
  EXPECT_GT(Preference(key, fleet.loads[1]), 0);
  EXPECT_LT(Preference(key, fleet.loads[2]), 0);
  RouteKey exact = key;
  exact.exact_only = true;
  EXPECT_EQ(Preference(exact, fleet.loads[0]), 0);
  EXPECT_LT(Preference(exact, fleet.loads[1]), 0);
}

TEST(PreferenceTest, AWorkerThatFailedThreeTimesComesAfterAnInexactOne) {
  Fleet fleet(2);
  fleet.loads[1].fingerprint = "G";
  std::vector<Failure> failures = {{fleet.loads[0].address, 2}};
  const RouteKey twice = {
      .model = "m", .fingerprint = "F", .tokenizer_fingerprint = "T", .failures = failures};
  EXPECT_LT(Preference(twice, fleet.loads[0]), Preference(twice, fleet.loads[1]));
  failures[0].count = 3;
  EXPECT_GT(Preference(twice, fleet.loads[0]), Preference(twice, fleet.loads[1]));
}

TEST(PreferenceTest, AnEmptyFingerprintEqualsNothing) {
  Fleet fleet(1);
  fleet.loads[0].fingerprint = "";
  const RouteKey key = {.model = "m", .fingerprint = "", .tokenizer_fingerprint = "T"};
  EXPECT_GT(Preference(key, fleet.loads[0]), 0);
  EXPECT_LT(
      Preference({.model = "m", .tokenizer_fingerprint = "T", .exact_only = true}, fleet.loads[0]),
      0);
}

TEST(CostTest, OwnRequestsCountOnceWhetherReportedOrNot) {
  Fleet fleet(2);
  const RouteKey key = {.model = "m"};
  // Ten of ours: the first worker has reported them, the second could not yet.
  fleet.loads[0].running_requests = 10;
  fleet.candidates[0].in_flight_requests = 10;
  fleet.candidates[1].unreported_requests = 10;
  fleet.candidates[1].in_flight_requests = 10;
  EXPECT_DOUBLE_EQ(Cost(key, fleet.candidates[0]), Cost(key, fleet.candidates[1]));
}

TEST(CostTest, PromptTokensSentButNotReportedCountLikeReportedOnes) {
  Fleet fleet(2);
  fleet.loads[0].total_kv_blocks = fleet.loads[1].total_kv_blocks = 0;
  fleet.loads[0].pending_prompt_tokens = 5000;
  fleet.candidates[1].unreported_prompt_tokens = 5000;
  EXPECT_DOUBLE_EQ(Cost({.model = "m"}, fleet.candidates[0]),
                   Cost({.model = "m"}, fleet.candidates[1]));
}

TEST(CostTest, ARequestThatDoesNotFitCostsMoreThanAnyThatFits) {
  Fleet fleet(2);
  fleet.loads[0].used_kv_blocks = 100;
  fleet.loads[1].used_kv_blocks = 98;
  const RouteKey key = {.model = "m", .prompt_tokens = 32};
  EXPECT_GT(Cost(key, fleet.candidates[0]), 1 + Cost(key, fleet.candidates[1]));
}

}  // namespace
}  // namespace continuo::gateway
