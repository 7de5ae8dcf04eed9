// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::gateway {

// One pool of workers, such as a release or its canary.
struct PoolSpec {
  std::string name;    // For metrics and logs; the pool's number, from 0, if none is given.
  std::string target;  // The argument of MakeResolver.
  // The pool's share of a model's new requests, relative to the other pools that can take them. A
  // pool of weight 0 gets only requests that no other pool can take.
  double weight = 1;
};

// Parses the value of --workers: "TARGET" or "TARGET@WEIGHT;NAME=TARGET@WEIGHT;…", at most 16
// pools. INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<PoolSpec>> ParsePools(const std::string& text);

}  // namespace continuo::gateway
