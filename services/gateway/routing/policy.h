// SPDX-License-Identifier: Apache-2.0
#pragma once

// Routing policies: pure functions of the request, the loads and random bits that decide which
// worker takes a request. They give the same result in every build and every gateway.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/random/bit_gen_ref.h"
#include "services/gateway/routing/worker_load.h"

namespace continuo::gateway {

// A worker on which this request has failed since its last progress.
struct Failure {
  std::string address;
  int count = 0;
};

// The part of a request that routing may look at.
struct RouteKey {
  std::string_view model;  // may be empty if only one model is served
  // The fingerprints of what the stream has received so far; empty for a new request.
  std::string_view fingerprint;
  std::string_view tokenizer_fingerprint;
  // Where nothing was received, workers whose fingerprint begins so are preferred; empty: all are
  // alike.
  std::string_view preferred_fingerprint;
  bool exact_only = false;    // only a worker of the same fingerprint will do
  bool allow_inexact = true;  // false: wait for a lost worker of the same fingerprint instead
  int64_t prompt_tokens = 0;  // estimate of the tokens to compute
  // Requests with the same hash should meet at one worker (route_hash.h); 0 has no preference.
  uint64_t prefix_hash = 0;
  uint64_t session_hash = 0;
  std::span<const Failure> failures;         // avoided if others are left
  std::span<const std::string> rejected_by;  // addresses that must not be picked
  // Name of the worker that a client's continuation comes from; empty for none. It is picked
  // whatever its load if it is one of the most preferred.
  std::string_view last_worker;
};

// A worker that may take the request, with the requests of this gateway that its last report cannot
// show yet.
struct Candidate {
  const WorkerLoad* load = nullptr;
  int64_t unreported_requests = 0;
  int64_t unreported_prompt_tokens = 0;
  int64_t in_flight_requests = 0;  // all requests of this gateway that are open there
};

// True for a request that continues a stream.
bool IsContinued(const RouteKey& key);
// True if a worker of this fingerprint makes the same tokens as the one before it. Any does for a
// request that neither continues nor prefers one.
bool IsExact(const RouteKey& key, std::string_view fingerprint);

// The rank of a worker for the request: lower comes first, negative means never. A worker of the
// same fingerprint comes before one of the same tokenizer; another tokenizer is never taken. Within
// that, fewer failures come first. A worker with three failures comes after one that would go on
// inexactly.
int Preference(const RouteKey& key, const WorkerLoad& load);
inline constexpr int kNeverPreferred = -1;
// Returns the Preference of a worker with these fingerprints that has not failed.
int PreferenceOf(const RouteKey& key, std::string_view fingerprint,
                 std::string_view tokenizer_fingerprint);

// The candidate that is key.last_worker, if it is one of the most preferred; nothing without one.
std::optional<size_t> FindLastWorker(const RouteKey& key, std::span<const Candidate> candidates);

// The load that the request would meet at a worker, in units of a full worker: KV occupancy with
// the request in it, plus prompt tokens ahead of it over kTokensPerUnit, plus sequences over the
// batch's limit, plus kSlowCost if the worker is slow, plus kOnDemandCost if it has to read the
// adapter first. A slow worker thus gets few requests, which show whether it still is slow, and an
// adapter is read where its requests have filled the workers that have it. Each of this gateway's
// requests counts once: not beside the report if that shows it.
double Cost(const RouteKey& key, const Candidate& candidate);
inline constexpr double kTokensPerUnit = 4096;
inline constexpr double kSlowCost = 2;
inline constexpr double kOnDemandCost = 1;

// Returns what each token of the prompt adds to the Cost at the worker.
double CostPerToken(const WorkerLoad& load);

// True if the worker would begin the request at once: as far as is known nobody waits there and no
// prompt is ahead.
bool IsFree(const RouteKey& key, const Candidate& candidate);
// The cost that a free worker may have beyond another one. A short prompt in the other's last
// report is no reason to go where the cache is nearly full.
inline constexpr double kFreeIsWorth = 0.5;

// The candidates that a policy chooses from: the most preferred ones of one pool. The pool is
// chosen at random by the pools' weights; a session keeps its pool while that has a worker.
// Candidates are numbered as their owner likes.
class Choices {
 public:
  virtual ~Choices() = default;
  virtual Candidate At(size_t number) const = 0;
  // One of them, each equally likely. These return nothing where there is none, or where the one
  // that is asked for is not found soon.
  virtual std::optional<size_t> Any(absl::BitGenRef random) const = 0;
  // One of those that are free and cost at most `most`.
  virtual std::optional<size_t> AnyFree(double most, absl::BitGenRef random) const = 0;
  // The mean of their Cost, about.
  virtual double MeanCost() const = 0;
  // Returns the choice of the least RingDistance to the hash that costs at most `most`.
  virtual std::optional<size_t> Nearest(uint64_t hash, double most) const = 0;
};

// A pool that a request of `key` may go to, and its weight.
using PoolWeights = std::map<int, double>;
// Needs at least one.
int ChoosePool(const RouteKey& key, const PoolWeights& pools, absl::BitGenRef random);

// Returns a number of `choices`, or nothing where it finds none.
using ChoicePolicy = std::optional<size_t> (*)(const RouteKey& key, const Choices& choices,
                                               absl::BitGenRef random);
// The same policy over a list. Returns an index into `candidates`, or nothing if none may take the
// request. Looks at each candidate.
using Policy = std::optional<size_t> (*)(const RouteKey& key, std::span<const Candidate> candidates,
                                         absl::BitGenRef random);

// The cheaper one of two candidates chosen at random with replacement; if that is not free, a free
// one that is not much dearer, if there is any; if it has to read the adapter, a free one that has
// it. Reports are old by the time they are used, so the
// minimum of all would send everybody to the same place, while a free worker gets one request from
// each gateway.
std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                       absl::BitGenRef random);

// The candidate of the least RingDistance among those whose Cost is at most kLoadBound times
// the mean plus kLoadSlack. So a request goes where its prefix is cached, and a popular prefix
// spreads as far as its load needs. Without a hash it works like LeastLoadedOfTwo.
std::optional<size_t> PrefixAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                     absl::BitGenRef random);
// Chooses as PrefixAffinity does, by the hash of x-session-id.
std::optional<size_t> SessionAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                      absl::BitGenRef random);
// Chooses by session; without a session by prefix; without both like LeastLoadedOfTwo.
std::optional<size_t> Affinity(const RouteKey& key, std::span<const Candidate> candidates,
                               absl::BitGenRef random);
inline constexpr double kLoadBound = 1.25;
inline constexpr double kLoadSlack = 0.25;

// Ignores load; the baseline of comparisons.
std::optional<size_t> Random(const RouteKey& key, std::span<const Candidate> candidates,
                             absl::BitGenRef random);

struct NamedPolicy {
  std::string_view name;  // of --routing_policy
  Policy policy;
};
inline constexpr NamedPolicy kPolicies[] = {{"least_loaded", &LeastLoadedOfTwo},
                                            {"prefix_affinity", &PrefixAffinity},
                                            {"session_affinity", &SessionAffinity},
                                            {"affinity", &Affinity},
                                            {"random", &Random}};
// Null if no policy has that name.
Policy FindPolicy(std::string_view name);
// The one that `policy` applies to a list; null where it is none of kPolicies.
ChoicePolicy FindChoicePolicy(Policy policy);

}  // namespace continuo::gateway
