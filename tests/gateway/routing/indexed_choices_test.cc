// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/indexed_choices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

// A random fleet and a random request, seen through the table and as a list of all candidates.
class Case {
 public:
  explicit Case(uint64_t seed) : random_(seed) {
    LoadSnapshot snapshot;
    const int size = static_cast<int>(1 + random_() % 40);
    for (int i = 0; i < size; ++i) {
      auto load = std::make_shared<WorkerLoad>();
      load->address = "10.0.0." + std::to_string(i) + ":1";
      load->worker = "w" + std::to_string(i);
      load->model = OneOf({"m", "m", "m", "n"});
      load->fingerprint = OneOf({"F", "F", "F", "G", ""});
      load->tokenizer_fingerprint = OneOf({"T", "T", "U"});
      load->state = random_() % 4 == 0 ? WorkerState::kDraining : WorkerState::kServing;
      load->pool = static_cast<int>(random_() % 2);
      load->pool_weight = load->pool == 0 ? 9 : 1;
      load->running_requests = static_cast<int64_t>(random_() % 70);
      load->pending_prompt_tokens = random_() % 2 == 0 ? 0 : static_cast<int64_t>(random_() % 9000);
      load->used_kv_blocks = static_cast<int64_t>(random_() % 100);
      load->total_kv_blocks = 100;
      load->block_size_tokens = 16;
      load->max_running_requests = 64;
      snapshot.workers.push_back(std::move(load));
    }
    view_.Set(std::move(snapshot));
    snapshot_ = view_.Get();
    for (uint32_t i = 0; i < snapshot_->workers.size(); ++i) {
      if (!find(i).has_value()) continue;
      candidates.push_back(*find(i));
      numbers.push_back(i);
    }
    const uint64_t kind = random_() % 4;
    if (kind == 1) key.fingerprint = "F";
    if (kind == 2) key.fingerprint = "G";
    if (kind > 0) key.tokenizer_fingerprint = "T";
    if (kind == 0 && random_() % 2 == 0) key.preferred_fingerprint = "F";
    key.exact_only = random_() % 4 == 0;
    key.prompt_tokens = static_cast<int64_t>(random_() % 600);
    key.session_hash = random_() | 1;
    for (uint64_t i = random_() % 3; i > 0; --i) {
      failures_.push_back({Address(), static_cast<int>(1 + random_() % 4)});
      rejected_.push_back(Address());
    }
    key.failures = failures_;
    key.rejected_by = rejected_;
    if (random_() % 3 == 0) last_ = "w" + std::to_string(random_() % snapshot_->workers.size());
    key.last_worker = last_;
  }

  IndexedChoices Indexed() { return IndexedChoices(*snapshot_, "m", key, find, random_); }
  std::string Address() {
    return snapshot_->workers[random_() % snapshot_->workers.size()]->address;
  }

  RouteKey key = {.model = "m"};
  std::vector<Candidate> candidates;  // All that serve the model.
  std::vector<uint32_t> numbers;      // Of the candidates, in the snapshot.
  std::function<std::optional<Candidate>(uint32_t)> find =
      [this](uint32_t number) -> std::optional<Candidate> {
    const WorkerLoad& load = *snapshot_->workers[number];
    if (load.model != "m" || load.state != WorkerState::kServing) return std::nullopt;
    return Candidate{.load = &load};
  };
  std::mt19937_64& random() { return random_; }

 private:
  std::string OneOf(const std::vector<std::string>& values) {
    return values[random_() % values.size()];
  }

  std::mt19937_64 random_;
  LoadView view_;
  std::shared_ptr<const LoadSnapshot> snapshot_;
  std::vector<Failure> failures_;
  std::vector<std::string> rejected_;
  std::string last_;
};

// The candidates that `policy` picks in many draws, as numbers of the snapshot.
std::set<size_t> Picks(Case& c, Policy policy) {
  std::set<size_t> picks;
  for (int i = 0; i < 400; ++i) {
    const std::optional<size_t> pick = policy(c.key, c.candidates, c.random());
    if (pick.has_value()) picks.insert(c.numbers[*pick]);
  }
  return picks;
}

TEST(IndexedChoicesTest, TheTableFindsOnlyWhatAListFinds) {
  int num_found = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Case c(seed);
    const std::set<size_t> expected = Picks(c, &Random);
    const IndexedChoices choices = c.Indexed();
    std::set<size_t> found;
    for (int i = 0; i < 400; ++i) {
      const std::optional<size_t> pick = choices.Any(c.random());
      if (pick.has_value()) found.insert(*pick);
    }
    // It finds nothing where only workers are left on which the request has failed.
    if (!found.empty()) {
      EXPECT_EQ(found, expected) << seed;
      ++num_found;
    }
    if (c.key.failures.empty() && c.key.rejected_by.empty()) {
      EXPECT_EQ(found, expected) << seed;
    }
  }
  EXPECT_GT(num_found, 150);
}

TEST(IndexedChoicesTest, TheLastWorkerIsThatOfTheList) {
  int num_found = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Case c(seed);
    const std::optional<size_t> expected = FindLastWorker(c.key, c.candidates);
    const std::optional<size_t> found = c.Indexed().LastWorker();
    ASSERT_EQ(found.has_value(), expected.has_value()) << seed;
    if (!found.has_value()) continue;
    EXPECT_EQ(*found, c.numbers[*expected]) << seed;
    ++num_found;
  }
  EXPECT_GT(num_found, 20);
}

TEST(IndexedChoicesTest, ASessionsPlaceAndTheMeanCostAreThoseOfTheList) {
  int num_found = 0, num_moved = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    Case c(seed);
    const IndexedChoices choices = c.Indexed();
    // The request's session chooses the pool, so the list has the same choices.
    const std::optional<size_t> home = SessionAffinity(c.key, c.candidates, c.random());
    if (!choices.Any(c.random()).has_value()) continue;
    ASSERT_TRUE(home.has_value());
    if (c.key.failures.empty() && c.key.rejected_by.empty()) {
      double sum = 0;
      const std::set<size_t> members = Picks(c, &Random);
      for (size_t i = 0; i < c.candidates.size(); ++i) {
        if (members.contains(c.numbers[i])) sum += Cost(c.key, c.candidates[i]);
      }
      // A request that does not fit costs one more, which the mean of the table leaves out.
      EXPECT_LE(choices.MeanCost(), sum / static_cast<double>(members.size()) + 1e-9) << seed;
      EXPECT_GE(choices.MeanCost(), sum / static_cast<double>(members.size()) - 1 - 1e-9) << seed;
    }
    const double bound = choices.MeanCost() * kLoadBound + kLoadSlack;
    const std::optional<size_t> nearest = choices.Nearest(c.key.session_hash, bound);
    const std::optional<size_t> anywhere = choices.Nearest(c.key.session_hash, 1e9);
    ASSERT_TRUE(anywhere.has_value());
    if (nearest.has_value()) {
      EXPECT_LE(Cost(c.key, *c.find(static_cast<uint32_t>(*nearest))), bound);
    }
    if (nearest != anywhere) ++num_moved;
    // Where no load matters the place is exactly that of the least distance.
    const RingProbes probes = ProbesOf(c.key.session_hash);
    const auto distance = [&](size_t number) {
      return RingDistance(probes, c.find(static_cast<uint32_t>(number))->load->address);
    };
    for (const size_t other : Picks(c, &Random)) {
      ASSERT_LE(distance(*anywhere), distance(other)) << seed;
    }
    ++num_found;
  }
  EXPECT_GT(num_found, 300);
  EXPECT_GT(num_moved, 30);
}

TEST(IndexedChoicesTest, AFreeOneIsFreeAndWithinTheCost) {
  int num_found = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Case c(seed);
    const IndexedChoices choices = c.Indexed();
    const std::set<size_t> members = Picks(c, &Random);
    const std::optional<size_t> free = choices.AnyFree(/*most=*/1, c.random());
    bool any = false;
    for (size_t i = 0; i < c.candidates.size(); ++i) {
      any |= members.contains(c.numbers[i]) && IsFree(c.key, c.candidates[i]) &&
             Cost(c.key, c.candidates[i]) <= 1;
    }
    if (!free.has_value()) continue;
    EXPECT_TRUE(any) << seed;
    EXPECT_TRUE(members.contains(*free)) << seed;
    EXPECT_TRUE(IsFree(c.key, *c.find(static_cast<uint32_t>(*free))));
    EXPECT_LE(Cost(c.key, *c.find(static_cast<uint32_t>(*free))), 1);
    ++num_found;
  }
  EXPECT_GT(num_found, 50);
}

}  // namespace
}  // namespace continuo::gateway
