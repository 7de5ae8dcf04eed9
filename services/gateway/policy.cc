// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/policy.h"

#include <algorithm>
#include <vector>

#include "absl/random/distributions.h"

namespace continuo::gateway {
namespace {

constexpr int kNever = -1;
// Batch limit of a worker that reports none.
constexpr int64_t kDefaultMaxRunning = 256;

int FailuresAt(const RouteKey& key, const std::string& address) {
  for (const Failure& failure : key.failures) {
    if (failure.address == address) return failure.count;
  }
  return 0;
}

}  // namespace

int Preference(const RouteKey& key, const WorkerLoad& load) {
  if (std::ranges::find(key.refused, load.address) != key.refused.end()) return kNever;
  const int failures = FailuresAt(key, load.address);
  const int step = failures == 0 ? 0 : failures < 3 ? 1 : 4;
  const bool continued = !key.fingerprint.empty() || !key.tokenizer_fingerprint.empty();
  if (!continued) return key.exact_only && load.fingerprint.empty() ? 8 + step : step;
  if (!key.fingerprint.empty() && key.fingerprint == load.fingerprint) return step;
  if (key.exact_only) return kNever;
  if (key.tokenizer_fingerprint == load.tokenizer_fingerprint) return 2 + step;
  return kNever;
}

double Cost(const RouteKey& key, const Candidate& candidate) {
  const WorkerLoad& load = *candidate.load;
  const int64_t new_tokens = candidate.unreported_prompt_tokens + key.prompt_tokens;

  double occupancy = 0;
  if (load.total_kv_blocks > 0 && load.block_size_tokens > 0) {
    const double total = static_cast<double>(load.total_kv_blocks);
    const double added = static_cast<double>(new_tokens) / load.block_size_tokens;
    occupancy = (load.used_kv_blocks + added) / total;
    // It has to wait for others to end, whatever its length.
    if (occupancy > 1) occupancy += 1;
  }
  const int64_t ahead = load.pending_prompt_tokens + candidate.unreported_prompt_tokens;
  const int64_t sequences =
      std::max(load.running_requests + load.waiting_requests + candidate.unreported_requests,
               candidate.in_flight_requests);
  const int64_t limit =
      load.max_running_requests > 0 ? load.max_running_requests : kDefaultMaxRunning;
  return occupancy + ahead / kTokensPerUnit + static_cast<double>(sequences) / limit +
         (load.slow ? kSlowCost : 0);
}

std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
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
  if (best.empty()) return std::nullopt;
  const size_t a = best[absl::Uniform<size_t>(random, 0, best.size())];
  const size_t b = best[absl::Uniform<size_t>(random, 0, best.size())];
  return Cost(key, candidates[a]) <= Cost(key, candidates[b]) ? a : b;
}

}  // namespace continuo::gateway
