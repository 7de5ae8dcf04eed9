// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/indexed_choices.h"

#include <algorithm>

#include "absl/random/distributions.h"

namespace continuo::gateway {
namespace {

// The numbers of workers that are looked at in vain, one after another: any, free ones, and near
// ones. A free one is no longer free after a request of this gateway; of near ones most are within
// the bound of their load.
constexpr int kAnyTries = 32;
constexpr size_t kFreeTries = 12, kNearTries = 12;
// The number of groups in which the nearest worker is sought at a time.
constexpr size_t kMaxRings = 8;

}  // namespace

IndexedChoices::IndexedChoices(const LoadSnapshot& snapshot, std::string_view model,
                               const RouteKey& key, Find find, absl::BitGenRef random)
    : snapshot_(snapshot), model_(model), key_(key), find_(find) {
  const RouteTable& table = *snapshot.table;
  const auto add_exceptions = [&](std::string_view address) {
    for (const uint32_t number : table.AtAddress(address)) {
      const WorkerLoad& load = *snapshot.workers[number];
      if (load.model != model || load.state != WorkerState::kServing || IsException(number)) {
        continue;
      }
      exceptions_.push_back(number);
      const int preference = Preference(key, load);
      if (preference >= 0 && (preference_ < 0 || preference < preference_)) {
        preference_ = preference;
      }
    }
  };
  for (const Failure& failure : key.failures) {
    if (failure.count > 0) add_exceptions(failure.address);
  }
  for (const std::string& address : key.rejected_by) add_exceptions(address);

  for (const RouteGroup& group : table.GroupsOf(model)) {
    const int preference = PreferenceOf(key, group.fingerprint, group.tokenizer_fingerprint);
    if (preference < 0 || (preference_ >= 0 && preference > preference_)) continue;
    const auto num_exceptions = std::ranges::count_if(
        exceptions_, [&](uint32_t number) { return table.GroupOf(number) == group.number; });
    if (LoadOf(group).serving.size() <= static_cast<size_t>(num_exceptions)) continue;
    // No preference of an exception equals one of a group.
    if (preference != preference_) groups_.clear();
    preference_ = preference;
    groups_.push_back(&group);
  }
  PoolWeights pools;
  double sum = 0;
  for (const RouteGroup* group : groups_) {
    if (pools.emplace(group->pool, group->pool_weight).second) sum += group->pool_weight;
  }
  if (pools.size() > 1 && sum > 0) {
    const int pool = ChoosePool(key, pools, random);
    const auto others = std::ranges::remove_if(
        groups_, [&](const RouteGroup* group) { return group->pool != pool; });
    groups_.erase(others.begin(), others.end());
  }
  for (const RouteGroup* group : groups_) num_serving_ += LoadOf(*group).serving.size();
}

bool IndexedChoices::IsException(uint32_t number) const {
  return std::ranges::find(exceptions_, number) != exceptions_.end();
}

std::optional<Candidate> IndexedChoices::Valid(uint32_t number) const {
  if (IsException(number)) return std::nullopt;
  return find_(number);
}

std::optional<size_t> IndexedChoices::LastWorker() const {
  if (key_.last_worker.empty()) return std::nullopt;
  for (const uint32_t number : snapshot_.table->Named(key_.last_worker)) {
    const WorkerLoad& load = *snapshot_.workers[number];
    if (load.model == model_ && Preference(key_, load) == preference_ && preference_ >= 0 &&
        find_(number).has_value()) {
      return number;
    }
  }
  return std::nullopt;
}

Candidate IndexedChoices::At(size_t number) const {
  for (const auto& [found, candidate] : found_) {
    if (found == number) return candidate;
  }
  return *find_(static_cast<uint32_t>(number));
}

std::optional<size_t> IndexedChoices::Any(absl::BitGenRef random) const {
  if (num_serving_ == 0) return std::nullopt;
  for (int i = 0; i < kAnyTries; ++i) {
    size_t at = absl::Uniform<size_t>(random, 0, num_serving_);
    for (const RouteGroup* group : groups_) {
      const std::vector<uint32_t>& serving = LoadOf(*group).serving;
      if (at >= serving.size()) {
        at -= serving.size();
        continue;
      }
      const std::optional<Candidate> candidate = Valid(serving[at]);
      if (!candidate.has_value()) break;
      found_.emplace_back(serving[at], *candidate);
      return serving[at];
    }
  }
  return std::nullopt;
}

std::optional<size_t> IndexedChoices::AnyFree(double most, absl::BitGenRef random) const {
  size_t num_free = 0;
  for (const RouteGroup* group : groups_) num_free += LoadOf(*group).free.size();
  if (num_free == 0) return std::nullopt;
  // From a random one on, round all of them.
  size_t at = absl::Uniform<size_t>(random, 0, num_free);
  size_t which = 0;
  while (at >= LoadOf(*groups_[which]).free.size()) at -= LoadOf(*groups_[which++]).free.size();
  for (size_t left = std::min<size_t>(num_free, kFreeTries); left > 0;) {
    const std::vector<uint32_t>& free = LoadOf(*groups_[which]).free;
    if (at == free.size()) {
      at = 0;
      which = which + 1 == groups_.size() ? 0 : which + 1;
      continue;
    }
    const uint32_t number = free[at++];
    --left;
    const std::optional<Candidate> candidate = Valid(number);
    if (candidate.has_value() && IsFree(key_, *candidate) && Cost(key_, *candidate) <= most) {
      return number;
    }
  }
  return std::nullopt;
}

double IndexedChoices::MeanCost() const {
  double sum = 0;
  for (const RouteGroup* group : groups_) {
    const GroupLoad& load = LoadOf(*group);
    sum += load.cost + static_cast<double>(key_.prompt_tokens) * load.cost_per_token;
  }
  return sum / static_cast<double>(std::max<size_t>(num_serving_, 1));
}

std::optional<size_t> IndexedChoices::Nearest(uint64_t hash, double most) const {
  if (groups_.empty() || groups_.size() > kMaxRings) return std::nullopt;
  // For each ring and probe the next point on the way forward. The nearest of them is next.
  struct Cursor {
    uint64_t distance;
    const HashRing* ring;
    size_t index;
    uint64_t probe;
  };
  absl::InlinedVector<Cursor, 2 * kNumProbes> cursors;
  const auto add = [&](const HashRing* ring, size_t index, uint64_t probe) {
    return Cursor{ring->position(index) - probe, ring, index, probe};
  };
  const RingProbes probes = ProbesOf(hash);
  for (const RouteGroup* group : groups_) {
    for (const uint64_t probe : probes) {
      cursors.push_back(add(&group->ring, group->ring.Find(probe), probe));
    }
  }
  absl::InlinedVector<uint32_t, kNearTries> seen;
  // A worker has many points, so more of them are met than workers.
  for (size_t i = 0; i < kNearTries * 4 && seen.size() < kNearTries; ++i) {
    Cursor& nearest = *std::ranges::min_element(cursors, {}, &Cursor::distance);
    const uint32_t number = nearest.ring->worker(nearest.index);
    nearest = add(nearest.ring, nearest.ring->Next(nearest.index), nearest.probe);
    if (std::ranges::find(seen, number) != seen.end()) continue;
    seen.push_back(number);
    const std::optional<Candidate> candidate = Valid(number);
    if (candidate.has_value() && Cost(key_, *candidate) <= most) return number;
  }
  return std::nullopt;
}

}  // namespace continuo::gateway
