// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/pool_spec.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace continuo::gateway {
namespace {

constexpr size_t kMaxPools = 16;
constexpr double kMaxWeight = 1e6;

}  // namespace

absl::StatusOr<std::vector<PoolSpec>> ParsePools(const std::string& text) {
  std::vector<PoolSpec> pools;
  const std::vector<std::string> parts = absl::StrSplit(text, ';');
  for (const std::string& part : parts) {
    PoolSpec& pool = pools.emplace_back();
    const size_t at = part.rfind('@');
    pool.target = part.substr(0, at);
    if (at != std::string::npos) {
      const std::string weight = part.substr(at + 1);
      if (!absl::SimpleAtod(weight, &pool.weight) || !std::isfinite(pool.weight) ||
          pool.weight < 0 || pool.weight > kMaxWeight) {
        return absl::InvalidArgumentError(absl::StrCat("--workers: the weight of \"", pool.target,
                                                       "\" is \"", weight,
                                                       "\", must be a number from 0 to 1000000"));
      }
    }
    if (pool.target.empty()) {
      return absl::InvalidArgumentError("--workers: a pool has no target");
    }
  }
  if (pools.size() > kMaxPools) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers has ", pools.size(), " pools, the limit is ", kMaxPools));
  }
  return pools;
}

}  // namespace continuo::gateway
