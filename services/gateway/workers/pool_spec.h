// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace continuo::gateway {

// Workers that come from one place: a release, or its canary.
struct PoolSpec {
  std::string target;  // as MakeResolver takes it
  // Share of a model's new requests, relative to the other pools that can take them. 0: only what
  // no other pool can take.
  double weight = 1;
};

// --workers: "TARGET" or "TARGET@WEIGHT;TARGET@WEIGHT;…", at most 16. INVALID_ARGUMENT names the
// part that is wrong.
absl::StatusOr<std::vector<PoolSpec>> ParsePools(const std::string& text);

}  // namespace continuo::gateway
