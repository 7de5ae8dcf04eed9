// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_json.h"

#include <cstdint>

#include "services/base/json_text.h"
#include "services/base/status_macros.h"

namespace continuo::hub {
namespace {

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxValues = 1 << 20;

}  // namespace

absl::StatusOr<nlohmann::json> ParseHubJson(std::string_view name, std::string_view text) {
  RETURN_IF_ERROR(CheckJson(name, text, kMaxDepth, kMaxValues));
  return nlohmann::json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
}

}  // namespace continuo::hub
