// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/routes/unknown_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/openai/routes/routes.h"

namespace continuo::gateway::openai {

std::string UnknownPathMessage(std::string_view method, std::string_view path) {
  constexpr size_t kMaxPathBytes = 200;
  constexpr std::string_view kVersion = "/v1";
  const std::string lower = absl::AsciiStrToLower(absl::string_view(path.data(), path.size()));
  std::string_view meant;
  std::string all;
  for (const Route& route : Routes()) {
    const std::string_view other = route.path;
    absl::StrAppend(&all, all.empty() ? "" : ", ", std::string(other));
    if (path.size() < 2 || other.size() < 2) continue;
    // Its beginning is missing: the least that can be. Or something is too much, perhaps between
    // the version and the rest: the least.
    const std::string_view rest =
        other.starts_with(kVersion) ? other.substr(kVersion.size()) : other;
    const bool lacks = other.ends_with(lower) && (meant.empty() || other.size() < meant.size());
    const bool exceeds = lower.ends_with(rest) && other.size() > meant.size();
    // Its end is missing: at most half of it.
    const bool begins = other.starts_with(lower) && 2 * lower.size() >= other.size();
    if (lacks || exceeds || (begins && meant.empty())) meant = other;
  }
  std::string message = absl::StrCat("Unknown request URL: ", std::string(method), " ",
                                     std::string(path.substr(0, kMaxPathBytes)), ". ");
  if (!meant.empty()) absl::StrAppend(&message, "Is it ", std::string(meant), "? ");
  return absl::StrCat(message, "The paths that are served: ", all, ".");
}

}  // namespace continuo::gateway::openai
