// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/fairness_check.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace continuo::simulate {

absl::Status FairnessCheck::OnStep(const std::map<std::string, int64_t>& tokens,
                                   const std::set<std::string>& waiting) {
  const auto of = [&](const std::string& tenant) {
    const auto at = tokens.find(tenant);
    return at == tokens.end() ? 0 : at->second;
  };
  std::erase_if(ahead_, [&](const auto& entry) {
    return !waiting.contains(entry.first.first) || !waiting.contains(entry.first.second);
  });
  for (auto a = waiting.begin(); a != waiting.end(); ++a) {
    for (auto b = std::next(a); b != waiting.end(); ++b) {
      int64_t& ahead = ahead_[{*a, *b}];
      ahead += of(*a) - of(*b);
      if (ahead <= slack_ && ahead >= -slack_) continue;
      return absl::InternalError(absl::StrCat("tenants \"", *a, "\" and \"", *b,
                                              "\" both wait, and the first is ", ahead,
                                              " tokens ahead of the second, more than ", slack_));
    }
  }
  return absl::OkStatus();
}

}  // namespace continuo::simulate
