// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/pool_spec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace continuo::gateway {
namespace {

constexpr size_t kMaxPools = 16;
constexpr double kMaxWeight = 1e6;
constexpr size_t kMaxNameBytes = 63;

bool IsPoolName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
}

}  // namespace

absl::StatusOr<std::vector<PoolSpec>> ParsePools(const std::string& text) {
  std::vector<PoolSpec> pools;
  const std::vector<std::string> parts = absl::StrSplit(text, ';');
  for (const std::string& part : parts) {
    PoolSpec& pool = pools.emplace_back();
    const size_t equals = part.find('=');
    const bool is_named = equals != std::string::npos && IsPoolName(part.substr(0, equals));
    pool.name = is_named ? part.substr(0, equals) : absl::StrCat(pools.size() - 1);
    const size_t begin = is_named ? equals + 1 : 0;
    const size_t at = part.rfind('@');
    pool.target = part.substr(begin, at == std::string::npos ? at : at - begin);
    if (std::ranges::count(pools, pool.name, &PoolSpec::name) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workers: two pools have the name \"", pool.name, "\""));
    }
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
