// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/cors.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace continuo::gateway::openai {
namespace {

// The headers that a preflight allows where it asks for none by name.
constexpr char kHeaders[] =
    "authorization, content-type, idempotency-key, last-event-id, x-api-key, x-request-id, "
    "x-session-id";
// No browser asks for a longer list.
constexpr size_t kMaxRequestedHeaders = 4096;

// scheme://host or scheme://host:port, without a path.
bool IsOrigin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0) return text == "null";
  const std::string_view host = text.substr(scheme + 3);
  return !host.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; }) &&
         host.find_first_of("/?#*,@") == std::string_view::npos;
}

// True if the text is a list of names of headers.
bool IsHeaderList(std::string_view text) {
  return !text.empty() && text.size() <= kMaxRequestedHeaders &&
         std::ranges::all_of(text, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("-_.!#$%&'*+^`|~, ").find(c) != std::string_view::npos;
         });
}

}  // namespace

absl::StatusOr<CorsPolicy> CorsPolicy::Parse(std::string_view text) {
  CorsPolicy policy;
  const absl::string_view list(text.data(), text.size());
  for (absl::string_view part : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    const std::string origin = absl::AsciiStrToLower(absl::StripAsciiWhitespace(part));
    if (origin == "*") {
      policy.any_ = true;
    } else if (IsOrigin(origin)) {
      policy.origins_.push_back(origin);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "--http_cors_origins: \"", origin,
          "\" is no origin: it must be * or scheme://host or scheme://host:port, without a path"));
    }
  }
  return policy;
}

bool CorsPolicy::Allows(std::string_view origin) const {
  if (any_) return true;
  const std::string lower = absl::AsciiStrToLower(absl::string_view(origin.data(), origin.size()));
  return std::ranges::find(origins_, lower) != origins_.end();
}

void CorsPolicy::AddTo(std::string_view origin, HttpHeaders* headers) const {
  if (any_) {
    if (origin.empty()) return;
    headers->emplace_back("Access-Control-Allow-Origin", "*");
  } else {
    if (origins_.empty()) return;
    // Caches must not give the answer for one origin to another one.
    headers->emplace_back("Vary", "Origin");
    if (origin.empty() || !Allows(origin)) return;
    headers->emplace_back("Access-Control-Allow-Origin", std::string(origin));
  }
  headers->emplace_back(
      "Access-Control-Expose-Headers",
      "x-request-id, request-id, retry-after, x-fingerprint, x-fingerprint-before, "
      "x-skipped-tools");
}

void CorsPolicy::AddPreflight(std::string_view origin, std::string_view allow,
                              std::string_view requested_headers, HttpHeaders* headers) const {
  if (!Allows(origin)) return;
  headers->emplace_back("Access-Control-Allow-Methods", std::string(allow));
  // "*" would leave out Authorization.
  headers->emplace_back("Access-Control-Allow-Headers", IsHeaderList(requested_headers)
                                                            ? std::string(requested_headers)
                                                            : std::string(kHeaders));
  headers->emplace_back("Access-Control-Max-Age", "600");
  headers->emplace_back("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers");
}

}  // namespace continuo::gateway::openai
