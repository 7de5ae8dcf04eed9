// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which worker takes a request: pure functions of the request, the loads and random bits, the same
// in every build and every gateway.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/random/bit_gen_ref.h"
#include "services/gateway/routing/load_view.h"

namespace continuo::gateway {

// A worker on which this request failed since it last made progress, and how often.
struct Failure {
  std::string address;
  int count = 0;
};

// The part of a request that routing may look at.
struct RouteKey {
  std::string_view model;  // empty: the only one
  // Of what the stream has received so far; empty for a new request.
  std::string_view fingerprint;
  std::string_view tokenizer_fingerprint;
  bool exact_only = false;    // only the same fingerprint will do
  bool allow_inexact = true;  // false: rather wait for a lost worker of the same fingerprint
  int64_t prompt_tokens = 0;  // estimate of what has to be computed
  // Where its like should meet (route_hash.h); 0: anywhere.
  uint64_t prefix_hash = 0;
  uint64_t session_hash = 0;
  std::span<const Failure> failures;     // avoided where others are left
  std::span<const std::string> refused;  // addresses that must not be picked
};

// A worker that may take the request, with what this gateway sent there that its report cannot
// show yet.
struct Candidate {
  const WorkerLoad* load = nullptr;
  int64_t unreported_requests = 0;
  int64_t unreported_prompt_tokens = 0;
  int64_t in_flight_requests = 0;  // all of ours that are open there
};

// How gladly a worker is taken for the request: 0 first; negative never.
// Same fingerprint before same tokenizer before none; within that, fewer failures first. A worker
// with three failures comes after one that would go on inexactly.
int Preference(const RouteKey& key, const WorkerLoad& load);

// What the request would meet there, in units of a full worker: KV occupancy with the request in
// it, plus prompt tokens ahead of it over kTokensPerUnit, plus sequences over the batch's limit,
// plus kSlowCost where the worker is slow beyond reason: it gets little more than what shows
// whether it still is.
// Each of our own requests counts once: those that the report shows only there.
double Cost(const RouteKey& key, const Candidate& candidate);
inline constexpr double kTokensPerUnit = 4096;
inline constexpr double kSlowCost = 2;

// Nobody waits for the worker and no prompt is ahead of the request, as far as is known: it would
// be begun at once.
bool IsFree(const RouteKey& key, const Candidate& candidate);
// Of cost that a free worker may have beyond another: a short prompt in the other's last report is
// no reason to go where the cache is nearly full.
inline constexpr double kFreeIsWorth = 0.5;

// Every policy looks only at the most preferred candidates, and of those at the ones of one pool,
// drawn by the pools' weights: a session's always the same while its pool has a worker.

// An index into candidates, or nothing where none may take the request.
using Policy = std::optional<size_t> (*)(const RouteKey& key, std::span<const Candidate> candidates,
                                         absl::BitGenRef random);

// Of two drawn with replacement from the most preferred, the one of less cost; if that is not free,
// one that is, where there is any. Reports are old by the time they are used: the minimum of all
// would send everybody to the same place, while a free one gets one request of each gateway.
std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                       absl::BitGenRef random);

// The highest by RendezvousScore of those that are not much busier than the rest: Cost at most
// kLoadBound times the mean, plus kLoadSlack. So a request goes where its prefix is cached, and a
// popular prefix spreads as far as its load needs. Without a hash as LeastLoadedOfTwo.
std::optional<size_t> PrefixAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                     absl::BitGenRef random);
// The same by x-session-id.
std::optional<size_t> SessionAffinity(const RouteKey& key, std::span<const Candidate> candidates,
                                      absl::BitGenRef random);
// By session, where there is none by prefix, else as LeastLoadedOfTwo.
std::optional<size_t> Affinity(const RouteKey& key, std::span<const Candidate> candidates,
                               absl::BitGenRef random);
inline constexpr double kLoadBound = 1.25;
inline constexpr double kLoadSlack = 0.25;

// Blind; to compare with.
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
// Null where there is none of that name.
Policy FindPolicy(std::string_view name);

}  // namespace continuo::gateway
