// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/policy.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "absl/random/distributions.h"
#include "services/gateway/routing/route_hash.h"

namespace continuo::gateway {
namespace {

constexpr int kNever = -1;
// The batch limit of a worker that reports none.
constexpr int64_t kDefaultMaxRunning = 256;

int FailuresAt(const RouteKey& key, const std::string& address) {
  for (const Failure& failure : key.failures) {
    if (failure.address == address) return failure.count;
  }
  return 0;
}

// The occupancy of the KV cache with the request in it; 0 if the worker does not report its blocks.
double Occupancy(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  if (load.total_kv_blocks <= 0 || load.block_size_tokens <= 0) return 0;
  const int64_t new_tokens = candidate.unreported_prompt_tokens + key.prompt_tokens;
  const double added = static_cast<double>(new_tokens) / load.block_size_tokens;
  return (load.used_kv_blocks + added) / static_cast<double>(load.total_kv_blocks);
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

int Preference(const RouteKey& key, const WorkerLoad& load) {
  if (std::ranges::find(key.rejected_by, load.address) != key.rejected_by.end()) return kNever;
  const int failures = FailuresAt(key, load.address);
  const int step = failures == 0 ? 0 : failures < 3 ? 1 : 4;
  const bool continued = !key.fingerprint.empty() || !key.tokenizer_fingerprint.empty();
  if (!continued) return key.exact_only && load.fingerprint.empty() ? 8 + step : step;
  if (!key.fingerprint.empty() && key.fingerprint == load.fingerprint) return step;
  if (key.exact_only) return kNever;
  if (key.tokenizer_fingerprint == load.tokenizer_fingerprint) return 2 + step;
  return kNever;
}

std::optional<size_t> FindLastWorker(const RouteKey& key, std::span<const Candidate> candidates) {
  if (key.last_worker.empty()) return std::nullopt;
  std::optional<size_t> last;
  int least = std::numeric_limits<int>::max(), preference = kNever;
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
         (load.slow ? kSlowCost : 0);
}

bool IsFree(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  return load.waiting_requests + load.pending_prompt_tokens + candidate.unreported_requests == 0 &&
         Fullness(candidate) < 1 && Occupancy(key, candidate) <= 1 && !load.slow;
}

namespace {

// Returns the candidates that a policy chooses from, see Policy. Empty if none may be taken.
std::vector<size_t> Choices(const RouteKey& key, std::span<const Candidate> candidates,
                            absl::BitGenRef random) {
  std::vector<size_t> best;
  int best_preference = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const int preference = Preference(key, *candidates[i].load);
    if (preference < 0) continue;
    if (best.empty() || preference < best_preference) {
      best.clear();
      best_preference = preference;
    }
    if (preference == best_preference) best.push_back(i);
  }
  // Pools in ascending order, so that every gateway sees the same.
  std::map<int, double> weights;
  double sum = 0;
  for (const size_t i : best) {
    const auto [at, is_new] =
        weights.emplace(candidates[i].load->pool, candidates[i].load->pool_weight);
    if (is_new) sum += at->second;
  }
  if (weights.size() <= 1 || sum <= 0) return best;
  double at_weight = key.session_hash != 0 ? static_cast<double>(key.session_hash >> 11) * 0x1.0p-53
                                           : absl::Uniform<double>(random, 0, 1);
  at_weight *= sum;
  int pool = weights.begin()->first;
  for (const auto& [number, weight] : weights) {
    if (weight > 0) pool = number;  // the last one, if rounding leaves a rest
    if (at_weight < weight) break;
    at_weight -= weight;
  }
  std::erase_if(best, [&](size_t i) { return candidates[i].load->pool != pool; });
  return best;
}

std::optional<size_t> LighterOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                   const std::vector<size_t>& choices, absl::BitGenRef random) {
  if (choices.empty()) return std::nullopt;
  const size_t a = choices[absl::Uniform<size_t>(random, 0, choices.size())];
  const size_t b = choices[absl::Uniform<size_t>(random, 0, choices.size())];
  const size_t lighter = Cost(key, candidates[a]) <= Cost(key, candidates[b]) ? a : b;
  if (IsFree(key, candidates[lighter])) return lighter;
  const double most = Cost(key, candidates[lighter]) + kFreeIsWorth;
  std::vector<size_t> free;
  for (const size_t i : choices) {
    if (IsFree(key, candidates[i]) && Cost(key, candidates[i]) <= most) free.push_back(i);
  }
  return free.empty() ? lighter : free[absl::Uniform<size_t>(random, 0, free.size())];
}

std::optional<size_t> AtHome(uint64_t hash, const RouteKey& key,
                             std::span<const Candidate> candidates, absl::BitGenRef random) {
  const std::vector<size_t> choices = Choices(key, candidates, random);
  if (hash == 0 || choices.empty()) return LighterOfTwo(key, candidates, choices, random);
  std::vector<double> costs;
  double sum = 0;
  for (const size_t i : choices) sum += costs.emplace_back(Cost(key, candidates[i]));
  const double bound = sum / static_cast<double>(choices.size()) * kLoadBound + kLoadSlack;
  std::optional<size_t> home;
  uint64_t best_score = 0;
  for (size_t k = 0; k < choices.size(); ++k) {
    if (costs[k] > bound) continue;
    const uint64_t score = RendezvousScore(hash, candidates[choices[k]].load->address);
    if (home.has_value() && score <= best_score) continue;
    home = choices[k];
    best_score = score;
  }
  return home;  // there is one: the cheapest candidate is within the bound
}

}  // namespace

std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                       absl::BitGenRef random) {
  return LighterOfTwo(key, candidates, Choices(key, candidates, random), random);
}

std::optional<size_t> PrefixAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                     absl::BitGenRef random) {
  return AtHome(key.prefix_hash, key, candidates, random);
}

std::optional<size_t> SessionAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                      absl::BitGenRef random) {
  return AtHome(key.session_hash, key, candidates, random);
}

std::optional<size_t> Affinity(const RouteKey& key, std::span<const Candidate> candidates,
                               absl::BitGenRef random) {
  return AtHome(key.session_hash != 0 ? key.session_hash : key.prefix_hash, key, candidates,
                random);
}

std::optional<size_t> Random(const RouteKey& key, std::span<const Candidate> candidates,
                             absl::BitGenRef random) {
  const std::vector<size_t> choices = Choices(key, candidates, random);
  if (choices.empty()) return std::nullopt;
  return choices[absl::Uniform<size_t>(random, 0, choices.size())];
}

Policy FindPolicy(std::string_view name) {
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.policy;
  }
  return nullptr;
}

}  // namespace continuo::gateway
