// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/unknown_path.h"

#include "absl/strings/str_cat.h"
#include "services/gateway/openai/routes.h"

namespace continuo::gateway::openai {

std::string UnknownPathMessage(std::string_view method, std::string_view path) {
  constexpr size_t kMaxPathBytes = 200;
  std::string_view meant;
  std::string all;
  for (const Route& route : Routes()) {
    const std::string_view other = route.path;
    absl::StrAppend(&all, all.empty() ? "" : ", ", std::string(other));
    if (path.size() < 2 || other.size() < 2) continue;
    // Its beginning is missing: the least that can be. Or something is too much: the least.
    const bool lacks = other.ends_with(path) && (meant.empty() || other.size() < meant.size());
    const bool exceeds = path.ends_with(other) && other.size() > meant.size();
    if (lacks || exceeds) meant = other;
  }
  std::string message = absl::StrCat("Unknown request URL: ", std::string(method), " ",
                                     std::string(path.substr(0, kMaxPathBytes)), ". ");
  if (!meant.empty()) absl::StrAppend(&message, "Is it ", std::string(meant), "? ");
  return absl::StrCat(message, "The paths that are served: ", all, ".");
}

}  // namespace continuo::gateway::openai
