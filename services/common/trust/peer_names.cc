// SPDX-License-Identifier: Apache-2.0
#include "services/common/trust/peer_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace continuo::common {
namespace {

constexpr size_t kMaxNames = 64, kMaxDnsBytes = 253, kMaxLabelBytes = 63, kMaxUriBytes = 2048;

bool IsLabel(std::string_view label) {
  return !label.empty() && label.size() <= kMaxLabelBytes && std::ranges::all_of(label, [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
}

// True for at least `least` labels between dots.
bool IsDnsName(std::string_view name, int least) {
  if (name.size() > kMaxDnsBytes) return false;
  int num_labels = 0;
  while (true) {
    const size_t dot = name.find('.');
    if (!IsLabel(name.substr(0, dot))) return false;
    ++num_labels;
    if (dot == std::string_view::npos) return num_labels >= least;
    name.remove_prefix(dot + 1);
  }
}

// A segment of a path that stands for itself: no dots alone, and nothing that is encoded.
bool IsSegment(std::string_view segment) {
  return !segment.empty() && segment != "." && segment != ".." &&
         std::ranges::all_of(segment, [](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

// SCHEME://HOST/… without wildcards.
bool IsUri(std::string_view uri) {
  const size_t colon = uri.find("://");
  if (colon == 0 || colon == std::string_view::npos || uri.size() > kMaxUriBytes) return false;
  const std::string_view rest = uri.substr(colon + 3);
  return !rest.empty() && rest.front() != '/' &&
         std::ranges::all_of(uri, [](char c) { return c > 0x20 && c <= 0x7e && c != '*'; });
}

}  // namespace

absl::StatusOr<PeerNames> PeerNames::Parse(std::string_view flag,
                                           const std::vector<std::string>& names) {
  const std::string prefix = absl::StrCat("--", std::string(flag));
  if (names.size() > kMaxNames) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix, " has ", names.size(), " names, the limit is ", kMaxNames));
  }
  PeerNames result;
  for (const std::string& text : names) {
    std::string_view name = text;
    const bool is_uri = absl::StrContains(text, "://");
    const bool has_wildcard = is_uri ? name.ends_with("/*") : name.starts_with("*.");
    if (has_wildcard && is_uri) name.remove_suffix(1);  // The slash stays.
    if (has_wildcard && !is_uri) name.remove_prefix(2);
    // The wildcard of a URI is below its host, and that of a DNS name stands before two labels, so
    // that it is never a whole top level.
    const bool is_good =
        is_uri ? IsUri(name) && (!has_wildcard || name.find('/', name.find("://") + 3) != name.npos)
               : IsDnsName(name, has_wildcard ? 2 : 1);
    if (!is_good) {
      return absl::InvalidArgumentError(absl::StrCat(
          prefix, ": \"", absl::CHexEscape(text.substr(0, 256)),
          "\" is neither a DNS name, such as gateway.llm.svc or *.llm.svc, nor a URI, such as "
          "spiffe://cluster.local/ns/llm/sa/gateway or spiffe://cluster.local/ns/llm/sa/*"));
    }
    (is_uri ? result.uris_ : result.dns_)
        .push_back(
            {is_uri ? std::string(name) : absl::AsciiStrToLower(std::string(name)), has_wildcard});
  }
  return result;
}

bool PeerNames::AllowDns(std::string_view name) const {
  if (!IsDnsName(name, 1)) return false;
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  const size_t dot = lower.find('.');
  return std::ranges::any_of(dns_, [&](const Name& allowed) {
    if (!allowed.has_wildcard) return lower == allowed.text;
    return dot != std::string::npos && std::string_view(lower).substr(dot + 1) == allowed.text;
  });
}

bool PeerNames::AllowUri(std::string_view uri) const {
  return std::ranges::any_of(uris_, [&](const Name& allowed) {
    if (!allowed.has_wildcard) return uri == allowed.text;
    return uri.starts_with(allowed.text) && IsSegment(uri.substr(allowed.text.size()));
  });
}

bool PeerNames::Allow(const CertificateNames& names) const {
  return std::ranges::any_of(names.dns, [&](const auto& name) { return AllowDns(name); }) ||
         std::ranges::any_of(names.uris, [&](const auto& uri) { return AllowUri(uri); });
}

}  // namespace continuo::common
