// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_reference.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace continuo::hub {
namespace {

constexpr std::string_view kScheme = "hf://";
constexpr size_t kMaxName = 96, kMaxSegment = 255, kMaxPath = 1024;

// A user's or a model's name, as hubs allow them.
bool IsName(std::string_view name) {
  const bool is_plain = std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  return is_plain && !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         name.front() != '-' && name.back() != '.' && name.find("..") == std::string_view::npos &&
         // "--" stands for "/" in the folders of a cache.
         name.find("--") == std::string_view::npos;
}

}  // namespace

bool IsHubReference(std::string_view text) { return text.starts_with(kScheme); }

bool IsPlainPath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath) return false;
  while (true) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    const bool is_plain = std::ranges::none_of(name, [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\';
    });
    if (!is_plain || name.empty() || name == "." || name == ".." || name.size() > kMaxSegment) {
      return false;
    }
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
}

bool IsHexDigits(std::string_view text, size_t size) {
  return text.size() == size && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

absl::StatusOr<HubReference> ParseHubReference(std::string_view text) {
  const auto error = [text](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text.substr(0, 300)), "\" ",
                                                   std::string(what),
                                                   "; it must be hf://org/name[@revision][:file]"));
  };
  if (!IsHubReference(text)) return error("is no model of a hub");
  std::string_view rest = text.substr(kScheme.size());
  HubReference reference;
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    reference.file = rest.substr(colon + 1);
    if (!IsPlainPath(reference.file)) return error("has no plain path of a file");
    rest = rest.substr(0, colon);
  }
  if (const size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.revision = rest.substr(at + 1);
    if (!IsPlainPath(reference.revision)) return error("has no revision that can be one");
    rest = rest.substr(0, at);
  }
  const size_t slash = rest.find('/');
  if (slash == std::string_view::npos || !IsName(rest.substr(0, slash)) ||
      !IsName(rest.substr(slash + 1))) {
    return error("does not name a model");
  }
  reference.repository = rest;
  return reference;
}

}  // namespace continuo::hub
