// SPDX-License-Identifier: Apache-2.0
// A keys file of any bytes is an error that quotes none of them, or keys within the limits that are
// found again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "services/base/check.h"
#include "services/gateway/requests/key_ring.h"

namespace {

bool IsPrintable(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > 0x20 && c <= 0x7e; });
}

void CheckGrant(const continuo::gateway::KeyGrant& grant) {
  CONTINUO_CHECK(grant.tenant.size() <= 128 && IsPrintable(grant.tenant));
  for (const int64_t limit : {grant.limits.requests_per_minute, grant.limits.tokens_per_minute,
                              grant.limits.concurrent_requests}) {
    CONTINUO_CHECK(limit >= 0 && limit <= 1'000'000'000'000);
  }
  CONTINUO_CHECK(grant.models.size() <= 64);
  for (const std::string& model : grant.models) {
    CONTINUO_CHECK(model.size() <= 256 && IsPrintable(model) && grant.MayUse(model));
  }
  CONTINUO_CHECK(grant.MayUse("") == grant.models.empty());
  CONTINUO_CHECK(grant.id().size() == 8);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ring = continuo::gateway::KeyRing::Parse(text);
  if (!ring.ok()) {
    // Of the file only a line's number is told.
    const std::string message(ring.status().message());
    CONTINUO_CHECK(message.starts_with("line ") || message == "has no key");
    CONTINUO_CHECK(std::ranges::all_of(message, [](char c) { return c >= 0x20 && c <= 0x7e; }));
    return 0;
  }
  CONTINUO_CHECK(ring->num_keys() > 0);
  const std::vector<std::string> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n');
  for (const std::string& line : lines) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0].starts_with("#")) continue;
    CONTINUO_CHECK(words.size() >= 2);
    const auto grant = ring->Find(words[1]);
    if (words[1].starts_with("sha256:")) {
      CONTINUO_CHECK(grant == nullptr);  // A digest is not its key.
      continue;
    }
    CONTINUO_CHECK(grant != nullptr && grant->tenant == words[0]);
    CheckGrant(*grant);
  }
  const auto again = continuo::gateway::KeyRing::Parse(text);
  CONTINUO_CHECK(again.ok() && again->num_keys() == ring->num_keys());
  return 0;
}
