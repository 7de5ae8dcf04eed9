// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/policy.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/random/distributions.h"
#include "services/gateway/routing/hash_ring.h"

namespace continuo::gateway {
namespace {

// The batch limit of a worker that reports none.
constexpr int64_t kDefaultMaxRunning = 256;

int FailuresAt(const RouteKey& key, const std::string& address) {
  for (const Failure& failure : key.failures) {
    if (failure.address == address) return failure.count;
  }
  return 0;
}

// State slots that a running sequence may need in a step, of which a report counts one
// (WatchLoadResponse).
constexpr int64_t kStateSlotsOfSequence = 2;

// The occupancy of the state slots with the request in them; 0 if the model has none.
double StateOccupancy(const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  if (load.total_state_slots <= 0) return 0;
  const int64_t sequences = load.used_state_slots + candidate.unreported_requests + 1;
  return static_cast<double>(kStateSlotsOfSequence * sequences) /
         static_cast<double>(load.total_state_slots);
}

// The occupancy of the KV cache with the request in it; 0 if the worker does not report its blocks.
double KvOccupancy(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  if (load.total_kv_blocks <= 0 || load.block_size_tokens <= 0) return 0;
  const int64_t new_tokens = candidate.unreported_prompt_tokens + key.prompt_tokens;
  const double added = static_cast<double>(new_tokens) / load.block_size_tokens;
  return (load.used_kv_blocks + added) / static_cast<double>(load.total_kv_blocks);
}

// The fuller of the two kinds of memory, with the request in it.
double Occupancy(const RouteKey& key, const Candidate& candidate) {
  return std::max(KvOccupancy(key, candidate), StateOccupancy(candidate));
}

// The worker's sequences over the number that its batch holds.
double Fullness(const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  const int64_t sequences =
      std::max(load.running_requests + load.waiting_requests + candidate.unreported_requests,
               candidate.in_flight_requests);
  const int64_t limit =
      load.max_running_requests > 0 ? load.max_running_requests : kDefaultMaxRunning;
  return static_cast<double>(sequences) / limit;
}

}  // namespace

bool IsContinued(const RouteKey& key) {
  return !key.fingerprint.empty() || !key.tokenizer_fingerprint.empty();
}

bool IsExact(const RouteKey& key, std::string_view fingerprint) {
  if (!IsContinued(key)) return fingerprint.starts_with(key.preferred_fingerprint);
  return !key.fingerprint.empty() && key.fingerprint == fingerprint;
}

int PreferenceOf(const RouteKey& key, std::string_view fingerprint,
                 std::string_view tokenizer_fingerprint) {
  if (!IsContinued(key) && key.exact_only && fingerprint.empty()) return 8;
  if (IsExact(key, fingerprint)) return 0;
  if (!IsContinued(key)) return 2;
  if (key.exact_only || key.tokenizer_fingerprint != tokenizer_fingerprint) return kNeverPreferred;
  return 2;
}

int Preference(const RouteKey& key, const WorkerLoad& load) {
  if (std::ranges::find(key.rejected_by, load.address) != key.rejected_by.end()) {
    return kNeverPreferred;
  }
  const int best = PreferenceOf(key, load.fingerprint, load.tokenizer_fingerprint);
  if (best == kNeverPreferred) return kNeverPreferred;
  const int failures = FailuresAt(key, load.address);
  return best + (failures == 0 ? 0 : failures < 3 ? 1 : 4);
}

std::optional<size_t> FindLastWorker(const RouteKey& key, std::span<const Candidate> candidates) {
  if (key.last_worker.empty()) return std::nullopt;
  std::optional<size_t> last;
  int least = std::numeric_limits<int>::max(), preference = kNeverPreferred;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int rank = Preference(key, *candidates[i].load);
    if (rank < 0) continue;
    least = std::min(least, rank);
    if (candidates[i].load->worker != key.last_worker) continue;
    if (last.has_value() && preference <= rank) continue;
    last = i;
    preference = rank;
  }
  return preference == least ? last : std::nullopt;
}

double Cost(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  const double occupancy = Occupancy(key, candidate);
  // A request that does not fit has to wait for others to end, whatever its length.
  const double wait = occupancy > 1 ? 1 : 0;
  const int64_t ahead = load.pending_prompt_tokens + candidate.unreported_prompt_tokens;
  return occupancy + wait + ahead / kTokensPerUnit + Fullness(candidate) +
         (load.slow ? kSlowCost : 0) + (load.on_demand ? kOnDemandCost : 0);
}

double CostPerToken(const WorkerLoad& load) {
  if (load.total_kv_blocks <= 0 || load.block_size_tokens <= 0) return 0;
  return 1 /
         (static_cast<double>(load.block_size_tokens) * static_cast<double>(load.total_kv_blocks));
}

int ChoosePool(const RouteKey& key, const PoolWeights& pools, absl::BitGenRef random) {
  double sum = 0;
  for (const auto& [pool, weight] : pools) sum += weight;
  double at_weight = key.session_hash != 0 ? static_cast<double>(key.session_hash >> 11) * 0x1.0p-53
                                           : absl::Uniform<double>(random, 0, 1);
  at_weight *= sum;
  int chosen = pools.begin()->first;
  for (const auto& [pool, weight] : pools) {
    if (weight > 0) chosen = pool;  // the last one, if rounding leaves a rest
    if (at_weight < weight) break;
    at_weight -= weight;
  }
  return chosen;
}

bool IsFree(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  return load.waiting_requests + load.pending_prompt_tokens + candidate.unreported_requests == 0 &&
         Fullness(candidate) < 1 && Occupancy(key, candidate) <= 1 && !load.slow;
}

namespace {

// The most preferred candidates of one pool in a list.
class ListedChoices : public Choices {
 public:
  ListedChoices(const RouteKey& key, std::span<const Candidate> candidates, absl::BitGenRef random)
      : key_(key), candidates_(candidates) {
    int best_preference = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const int preference = Preference(key, *candidates[i].load);
      if (preference < 0) continue;
      if (numbers_.empty() || preference < best_preference) {
        numbers_.clear();
        best_preference = preference;
      }
      if (preference == best_preference) numbers_.push_back(i);
    }
    PoolWeights pools;
    double sum = 0;
    for (const size_t i : numbers_) {
      const WorkerLoad& load = *candidates[i].load;
      if (pools.emplace(load.pool, load.pool_weight).second) sum += load.pool_weight;
    }
    if (pools.size() <= 1 || sum <= 0) return;
    const int pool = ChoosePool(key, pools, random);
    std::erase_if(numbers_, [&](size_t i) { return candidates[i].load->pool != pool; });
  }

  Candidate At(size_t number) const override { return candidates_[number]; }
  std::optional<size_t> Any(absl::BitGenRef random) const override {
    return AnyOf(numbers_, random);
  }
  std::optional<size_t> AnyFree(double most, absl::BitGenRef random) const override {
    std::vector<size_t> free;
    for (const size_t i : numbers_) {
      if (IsFree(key_, candidates_[i]) && Cost(key_, candidates_[i]) <= most) free.push_back(i);
    }
    return AnyOf(free, random);
  }
  double MeanCost() const override {
    double sum = 0;
    for (const size_t i : numbers_) sum += Cost(key_, candidates_[i]);
    return sum / static_cast<double>(numbers_.size());
  }
  std::optional<size_t> Nearest(uint64_t hash, double most) const override {
    const RingProbes probes = ProbesOf(hash);
    std::optional<size_t> nearest;
    uint64_t least = 0;
    for (const size_t i : numbers_) {
      if (Cost(key_, candidates_[i]) > most) continue;
      const uint64_t distance = RingDistance(probes, candidates_[i].load->address);
      if (nearest.has_value() && distance >= least) continue;
      nearest = i;
      least = distance;
    }
    return nearest;
  }

 private:
  static std::optional<size_t> AnyOf(const std::vector<size_t>& numbers, absl::BitGenRef random) {
    if (numbers.empty()) return std::nullopt;
    return numbers[absl::Uniform<size_t>(random, 0, numbers.size())];
  }

  const RouteKey& key_;
  const std::span<const Candidate> candidates_;
  std::vector<size_t> numbers_;  // Indexes into candidates_.
};

std::optional<size_t> LighterOfTwo(const RouteKey& key, const Choices& choices,
                                   absl::BitGenRef random) {
  const std::optional<size_t> a = choices.Any(random);
  const std::optional<size_t> b = choices.Any(random);
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  const Candidate first = choices.At(*a), second = choices.At(*b);
  const double first_cost = Cost(key, first), second_cost = Cost(key, second);
  const bool is_first = first_cost <= second_cost;
  const size_t lighter = is_first ? *a : *b;
  if ((is_first ? first : second).load->on_demand) {
    // One that has the adapter in memory, while it is free.
    return choices.AnyFree(std::min(first_cost, second_cost) - kOnDemandCost / 2, random)
        .value_or(lighter);
  }
  if (IsFree(key, is_first ? first : second)) return lighter;
  return choices.AnyFree(std::min(first_cost, second_cost) + kFreeIsWorth, random)
      .value_or(lighter);
}

std::optional<size_t> AtHome(uint64_t hash, const RouteKey& key, const Choices& choices,
                             absl::BitGenRef random) {
  if (hash != 0) {
    // In a list one is always found: the cheapest candidate is within the bound.
    const double bound = choices.MeanCost() * kLoadBound + kLoadSlack;
    if (const std::optional<size_t> home = choices.Nearest(hash, bound)) return home;
  }
  return LighterOfTwo(key, choices, random);
}

std::optional<size_t> ByPrefix(const RouteKey& key, const Choices& choices,
                               absl::BitGenRef random) {
  return AtHome(key.prefix_hash, key, choices, random);
}

std::optional<size_t> BySession(const RouteKey& key, const Choices& choices,
                                absl::BitGenRef random) {
  return AtHome(key.session_hash, key, choices, random);
}

std::optional<size_t> BySessionOrPrefix(const RouteKey& key, const Choices& choices,
                                        absl::BitGenRef random) {
  return AtHome(key.session_hash != 0 ? key.session_hash : key.prefix_hash, key, choices, random);
}

std::optional<size_t> AnyChoice(const RouteKey&, const Choices& choices, absl::BitGenRef random) {
  return choices.Any(random);
}

template <ChoicePolicy policy>
std::optional<size_t> InList(const RouteKey& key, std::span<const Candidate> candidates,
                             absl::BitGenRef random) {
  return policy(key, ListedChoices(key, candidates, random), random);
}

}  // namespace

std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                       absl::BitGenRef random) {
  return InList<&LighterOfTwo>(key, candidates, random);
}

std::optional<size_t> PrefixAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                     absl::BitGenRef random) {
  return InList<&ByPrefix>(key, candidates, random);
}

std::optional<size_t> SessionAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                      absl::BitGenRef random) {
  return InList<&BySession>(key, candidates, random);
}

std::optional<size_t> Affinity(const RouteKey& key, std::span<const Candidate> candidates,
                               absl::BitGenRef random) {
  return InList<&BySessionOrPrefix>(key, candidates, random);
}

std::optional<size_t> Random(const RouteKey& key, std::span<const Candidate> candidates,
                             absl::BitGenRef random) {
  return InList<&AnyChoice>(key, candidates, random);
}

ChoicePolicy FindChoicePolicy(Policy policy) {
  if (policy == &LeastLoadedOfTwo) return &LighterOfTwo;
  if (policy == &PrefixAffinity) return &ByPrefix;
  if (policy == &SessionAffinity) return &BySession;
  if (policy == &Affinity) return &BySessionOrPrefix;
  if (policy == &Random) return &AnyChoice;
  return nullptr;
}

Policy FindPolicy(std::string_view name) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.policy;
  }
  return nullptr;
}

}  // namespace continuo::gateway
