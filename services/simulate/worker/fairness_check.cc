// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/fairness_check.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace continuo::simulate {

absl::Status FairnessCheck::OnStep(const std::map<std::string, Tokens>& tokens,
                                   const std::set<std::string>& live,
                                   const std::set<std::string>& waiting) {
  const auto of = [&](const std::string& tenant) {
    const auto at = tokens.find(tenant);
    return at == tokens.end() ? Tokens() : at->second;
  };
  std::erase_if(pairs_, [&](const auto& entry) {
    return !live.contains(entry.first.first) || !live.contains(entry.first.second);
  });
  for (auto a = live.begin(); a != live.end(); ++a) {
    for (auto b = std::next(a); b != live.end(); ++b) {
      Pair& pair = pairs_[{*a, *b}];
      const bool waits = waiting.contains(*a) && waiting.contains(*b);
      if (waits && !pair.waits) {
        pair.most = slack_ + std::max<int64_t>(0, pair.ahead);
        pair.least = -slack_ + std::min<int64_t>(0, pair.ahead);
      }
      pair.waits = waits;
      pair.ahead += of(*a).all - of(*b).all;
      pair.most += of(*a).migrated;
      pair.least -= of(*b).migrated;
      if (!waits || (pair.ahead <= pair.most && pair.ahead >= pair.least)) continue;
      return absl::InternalError(absl::StrCat(
          "tenants \"", *a, "\" and \"", *b, "\" both wait, and the first is ", pair.ahead,
          " tokens ahead of the second, which is not from ", pair.least, " to ", pair.most));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::simulate
