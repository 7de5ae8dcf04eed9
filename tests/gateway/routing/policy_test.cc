// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;

// A few workers of one model, each half full and with a prompt ahead, for a test to change.
struct Fleet {
  explicit Fleet(int size) : loads(size), candidates(size) {
    for (int i = 0; i < size; ++i) {
      loads[i] = {.address = "10.0.0." + std::to_string(i) + ":1",
                  .model = "m",
                  .fingerprint = "F",
                  .tokenizer_fingerprint = "T",
                  .state = WorkerState::kServing,
                  .pending_prompt_tokens = 100,
                  .used_kv_blocks = 50,
                  .total_kv_blocks = 100,
                  .block_size_tokens = 16,
                  .max_running_requests = 64};
      candidates[i].load = &loads[i];
    }
  }
  // Returns how often each worker is picked in `draws` picks.
  std::map<size_t, int> Draw(const RouteKey& key, int draws) {
    std::mt19937_64 random(1);
    std::map<size_t, int> hits;
    for (int i = 0; i < draws; ++i) hits[*LeastLoadedOfTwo(key, candidates, random)]++;
    return hits;
  }
  std::vector<WorkerLoad> loads;
  std::vector<Candidate> candidates;
};

TEST(LeastLoadedOfTwoTest, WorkersThatHaveTheAdapterComeFirstWhileTheyAreFree) {
  Fleet fleet(8);
  for (size_t i = 0; i < 8; ++i) {
    fleet.loads[i].pending_prompt_tokens = 0;
    fleet.loads[i].on_demand = i != 5;
  }
  const RouteKey key = {.model = "m", .prompt_tokens = 16};
  EXPECT_THAT(fleet.Draw(key, 200), ElementsAre(std::pair<const size_t, int>(5, 200)));
  // One that is not free is left to those that it has for neighbours.
  fleet.loads[5].waiting_requests = 60;
  fleet.loads[5].running_requests = 64;
  const std::map<size_t, int> hits = fleet.Draw(key, 200);
  EXPECT_FALSE(hits.contains(5));
  EXPECT_EQ(hits.size(), 7u);
}

TEST(FindLastWorkerTest, ItIsPickedWhileItIsAmongTheMostPreferred) {
  const std::vector<std::string> rejected = {"10.0.0.1:1"};
  const std::vector<Failure> failed = {{"10.0.0.1:1", 1}};
  const RouteKey base = {
      .model = "m", .fingerprint = "F", .tokenizer_fingerprint = "T", .last_worker = "w1"};
  struct Case {
    const char* what;
    RouteKey key;
    std::function<void(Fleet&)> change;
    std::optional<size_t> expected;
  };
  const auto with = [&](auto edit) {
    RouteKey key = base;
    edit(key);
    return key;
  };
  const auto nothing = [](Fleet&) {};
  const std::vector<Case> cases = {
      {"it lives", base, nothing, 1},
      {"it is full and slow", base,
       [](Fleet& f) {
         f.loads[1].used_kv_blocks = 100;
         f.loads[1].pending_prompt_tokens = 1 << 20;
         f.loads[1].slow = true;
       },
       1},
      {"a new request", with([](RouteKey& k) { k.last_worker = ""; }), nothing, std::nullopt},
      {"it is gone", with([](RouteKey& k) { k.last_worker = "w9"; }), nothing, std::nullopt},
      {"workers without names", with([](RouteKey& k) { k.last_worker = ""; }),
       [](Fleet& f) { f.loads[1].worker = ""; }, std::nullopt},
      {"it has rejected the request", with([&](RouteKey& k) { k.rejected_by = rejected; }), nothing,
       std::nullopt},
      {"it has failed", with([&](RouteKey& k) { k.failures = failed; }), nothing, std::nullopt},
      {"it has another model now", base, [](Fleet& f) { f.loads[1].fingerprint = "G"; },
       std::nullopt},
      {"it has another tokenizer now", base,
       [](Fleet& f) { f.loads[1].fingerprint = f.loads[1].tokenizer_fingerprint = "G"; },
       std::nullopt},
      {"all have another model now", base,
       [](Fleet& f) {
         for (WorkerLoad& load : f.loads) load.fingerprint = "G";
       },
       1},
      {"two of its name", base,
       [](Fleet& f) {
         f.loads[0].worker = "w1";
         f.loads[0].fingerprint = "G";
       },
       1},
      {"fingerprints are empty", with([](RouteKey& k) { k.fingerprint = ""; }),
       [](Fleet& f) {
         for (WorkerLoad& load : f.loads) load.fingerprint = "";
       },
       1}};
  for (const Case& c : cases) {
    Fleet fleet(3);
    for (int i = 0; i < 3; ++i) fleet.loads[i].worker = "w" + std::to_string(i);
    c.change(fleet);
    EXPECT_EQ(FindLastWorker(c.key, fleet.candidates), c.expected) << c.what;
  }
}

TEST(LeastLoadedOfTwoTest, ABusyWorkerAmongFourIsPickedOnceInSixteenDraws) {
  Fleet fleet(4);
  fleet.loads[3].pending_prompt_tokens = 100000;
  const auto hits = fleet.Draw({.model = "m"}, 100000);
  // Both choices have to hit it: 1/16; the standard deviation of 100,000 picks is 0.08 %.
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

TEST(LeastLoadedOfTwoTest, WorkersWithoutAQueueGoFirstAndShareEvenly) {
  Fleet fleet(8);
  fleet.loads[2].pending_prompt_tokens = fleet.loads[5].pending_prompt_tokens = 0;
  const auto hits = fleet.Draw({.model = "m"}, 10000);
  ASSERT_EQ(hits.size(), 2);
  EXPECT_NEAR(hits.at(2) / 1e4, 0.5, 0.03);
  EXPECT_NEAR(hits.at(5) / 1e4, 0.5, 0.03);
}

TEST(LeastLoadedOfTwoTest, AShortQueueIsNoReasonToGoWhereTheCacheIsFull) {
  Fleet fleet(2);
  // The last report was made just when a short prompt was ahead.
  fleet.loads[0].pending_prompt_tokens = 3;
  fleet.loads[1].pending_prompt_tokens = 0;
  fleet.loads[1].used_kv_blocks = 90;
  fleet.loads[0].used_kv_blocks = 10;
  ASSERT_TRUE(IsFree({.model = "m"}, fleet.candidates[1]));
  const auto hits = fleet.Draw({.model = "m"}, 10000);
  EXPECT_NEAR(hits.at(1) / 1e4, 0.25, 0.03);
  // A long one is a reason.
  fleet.loads[0].pending_prompt_tokens = 4000;
  EXPECT_EQ(fleet.Draw({.model = "m"}, 1000).size(), 1);
}

TEST(LeastLoadedOfTwoTest, AWorkerThatHasJustGotARequestIsNoLongerWithoutAQueue) {
  Fleet fleet(8);
  fleet.loads[2].pending_prompt_tokens = 0;
  fleet.candidates[2].unreported_requests = 1;
  EXPECT_EQ(fleet.Draw({.model = "m"}, 1000).size(), 8);
}

TEST(IsFreeTest, TellsWhetherARequestWouldBeBegunAtOnce) {
  Fleet fleet(1);
  WorkerLoad& load = fleet.loads[0];
  const auto is_free = [&](int64_t tokens) {
    return IsFree({.model = "m", .prompt_tokens = tokens}, fleet.candidates[0]);
  };
  EXPECT_FALSE(is_free(100));
  load.pending_prompt_tokens = 0;
  EXPECT_TRUE(is_free(100));
  EXPECT_TRUE(is_free(50 * 16));
  EXPECT_FALSE(is_free(50 * 16 + 1));  // no room
  load.waiting_requests = 1;
  EXPECT_FALSE(is_free(100));
  load.waiting_requests = 0;
  load.running_requests = 63;
  EXPECT_TRUE(is_free(100));
  load.running_requests = 64;  // the batch is full
  EXPECT_FALSE(is_free(100));
  load.running_requests = 0;
  load.slow = true;
  EXPECT_FALSE(is_free(100));
}

TEST(LeastLoadedOfTwoTest, NobodyIsPickedWhereNobodyMay) {
  Fleet fleet(2);
  std::mt19937_64 random(1);
  const std::vector<std::string> rejected_by = {fleet.loads[0].address, fleet.loads[1].address};
  EXPECT_FALSE(
      LeastLoadedOfTwo({.model = "m", .rejected_by = rejected_by}, fleet.candidates, random));
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

// A model's state slots count as its KV blocks do, whichever is the fuller.
TEST(CostTest, StateSlotsAreOccupiedLikeKvBlocks) {
  Fleet fleet(2);
  const RouteKey key = {.model = "m", .prompt_tokens = 16};
  const double without = Cost(key, fleet.candidates[0]);
  fleet.loads[0].total_state_slots = 100;
  fleet.loads[0].used_state_slots = 10;
  EXPECT_EQ(Cost(key, fleet.candidates[0]), without) << "less than of the blocks";
  fleet.loads[0].used_state_slots = 45;
  EXPECT_GT(Cost(key, fleet.candidates[0]), without + 0.3);
  // The next request does not fit: as for blocks, that is worth a whole unit more.
  fleet.loads[0].used_state_slots = 50;
  EXPECT_GT(Cost(key, fleet.candidates[0]), without + 1.3);
  fleet.loads[0].used_state_slots = 45;
  fleet.candidates[0].unreported_requests = 7;
  EXPECT_GT(Cost(key, fleet.candidates[0]), without + 1.3) << "those on the way count, too";
}

TEST(PrefixAffinityTest, ALostWorkerMovesOnlyWhatWasItsOwn) {
  Fleet all(5), left(5);
  left.candidates.erase(left.candidates.begin() + 2);
  std::mt19937_64 random(1);
  std::map<std::string, int> hits;
  int moved_from_it = 0;
  for (int i = 0; i < 20000; ++i) {
    const RouteKey key = {.model = "m", .prefix_hash = random() | 1};
    const std::string before =
        all.candidates[*PrefixAffinity(key, all.candidates, random)].load->address;
    const std::string after =
        left.candidates[*PrefixAffinity(key, left.candidates, random)].load->address;
    hits[before]++;
    if (before == all.loads[2].address) {
      ++moved_from_it;
    } else {
      ASSERT_EQ(before, after);
    }
  }
  // 4,000 are expected of each, with a standard deviation of 57.
  EXPECT_EQ(hits.size(), 5);
  for (const auto& [address, count] : hits) EXPECT_NEAR(count, 4000, 300) << address;
  EXPECT_NEAR(moved_from_it, 4000, 300);
}

TEST(PrefixAffinityTest, ItYieldsToLoadAndReturns) {
  Fleet fleet(4);
  std::mt19937_64 random(1);
  const RouteKey key = {.model = "m", .prefix_hash = 12345};
  const size_t home = *PrefixAffinity(key, fleet.candidates, random);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(*PrefixAffinity(key, fleet.candidates, random), home);
  }
  fleet.loads[home].pending_prompt_tokens = 8192;
  const size_t second = *PrefixAffinity(key, fleet.candidates, random);
  EXPECT_NE(second, home);
  EXPECT_EQ(*PrefixAffinity(key, fleet.candidates, random), second);
  fleet.loads[home].pending_prompt_tokens = 0;
  EXPECT_EQ(*PrefixAffinity(key, fleet.candidates, random), home);
}

TEST(PrefixAffinityTest, APrefixThatAllShareSpreadsAsFarAsItsLoad) {
  Fleet fleet(4);
  std::mt19937_64 random(1);
  const RouteKey key = {.model = "m", .prompt_tokens = 1000, .prefix_hash = 12345};
  std::map<size_t, int> hits;
  for (int i = 0; i < 400; ++i) {
    const size_t pick = *PrefixAffinity(key, fleet.candidates, random);
    fleet.candidates[pick].unreported_prompt_tokens += 1000;
    hits[pick]++;
  }
  EXPECT_EQ(hits.size(), 4);
  for (const auto& [worker, count] : hits) EXPECT_LE(count, 400 / 4 * kLoadBound + 2) << worker;
}

TEST(PrefixAffinityTest, WithoutAHashAndForSessionsWithoutOneLoadDecides) {
  Fleet fleet(4);
  fleet.loads[3].pending_prompt_tokens = 100000;
  for (const Policy policy : {&PrefixAffinity, &SessionAffinity, &Affinity}) {
    std::mt19937_64 random(1);
    std::map<size_t, int> hits;
    for (int i = 0; i < 100000; ++i) hits[*policy({.model = "m"}, fleet.candidates, random)]++;
    EXPECT_NEAR(hits.at(3) / 1e5, 0.0625, 0.004);
  }
}

TEST(AffinityTest, ASessionStaysTogetherWhateverItsPromptsAre) {
  Fleet fleet(8);
  std::mt19937_64 random(1);
  std::map<size_t, int> hits;
  for (int i = 0; i < 100; ++i) {
    hits[*Affinity({.model = "m", .prefix_hash = random() | 1, .session_hash = 99},
                   fleet.candidates, random)]++;
  }
  EXPECT_EQ(hits.size(), 1);
}

TEST(PoolTest, NewRequestsAreDividedByWeight) {
  Fleet fleet(4);
  for (int i = 0; i < 3; ++i) fleet.loads[i].pool_weight = 90;
  fleet.loads[3].pool = 1;
  fleet.loads[3].pool_weight = 10;
  EXPECT_NEAR(fleet.Draw({.model = "m"}, 100000).at(3) / 1e5, 0.1, 0.005);
  // A session always meets the same pool.
  std::mt19937_64 random(1);
  int canary = 0;
  for (int session = 0; session < 2000; ++session) {
    const RouteKey key = {.model = "m", .session_hash = random() | 1};
    std::set<int> pools;
    for (int i = 0; i < 5; ++i) {
      pools.insert(fleet.loads[*LeastLoadedOfTwo(key, fleet.candidates, random)].pool);
    }
    ASSERT_EQ(pools.size(), 1);
    canary += *pools.begin();
  }
  EXPECT_NEAR(canary, 200, 60);
}

TEST(PoolTest, AnEmptyPoolsShareGoesToTheOthersAndWeightZeroTakesTheRest) {
  Fleet fleet(2);
  fleet.loads[0].pool_weight = 1;
  fleet.loads[1].pool = 1;
  fleet.loads[1].pool_weight = 0;
  EXPECT_THAT(fleet.Draw({.model = "m"}, 200), ElementsAre(std::pair(0, 200)));
  const std::vector<std::string> rejected_by = {fleet.loads[0].address};
  EXPECT_THAT(fleet.Draw({.model = "m", .rejected_by = rejected_by}, 200),
              ElementsAre(std::pair(1, 200)));
}

TEST(PoolTest, AStreamStaysWithItsFingerprintWhateverTheWeights) {
  Fleet fleet(2);
  fleet.loads[0].pool_weight = 99;
  fleet.loads[1].pool = 1;
  fleet.loads[1].fingerprint = "G";
  const RouteKey key = {.model = "m", .fingerprint = "G", .tokenizer_fingerprint = "T"};
  EXPECT_THAT(fleet.Draw(key, 200), ElementsAre(std::pair(1, 200)));
}

TEST(FindPolicyTest, EveryNameIsFoundAndNoOther) {
  for (const NamedPolicy& policy : kPolicies) EXPECT_EQ(FindPolicy(policy.name), policy.policy);
  EXPECT_EQ(FindPolicy("nearest"), nullptr);
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
  // Ten requests of ours: the first worker has reported them, the second could not yet.
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
  fleet.loads[1].pending_prompt_tokens = 0;
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
