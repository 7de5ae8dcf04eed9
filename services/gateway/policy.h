// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which worker takes a request: pure functions of the request, the loads and random bits, the same
// in every build and every gateway.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/random/bit_gen_ref.h"
#include "services/gateway/load_view.h"

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

// An index into candidates, or nothing where none may take the request.
using Policy = std::optional<size_t> (*)(const RouteKey& key, std::span<const Candidate> candidates,
                                         absl::BitGenRef random);

// Of two drawn with replacement from the most preferred, the one of less cost. Reports are old by
// the time they are used: the minimum of all would send everybody to the same place.
std::optional<size_t> LeastLoadedOfTwo(const RouteKey& key, std::span<const Candidate> candidates,
                                       absl::BitGenRef random);

}  // namespace continuo::gateway
