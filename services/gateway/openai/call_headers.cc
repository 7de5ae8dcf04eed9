// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/call_headers.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/identity/fleet_secret.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxLoggedId = 128;

std::string ValueOf(const HttpRequest& request, std::string_view name) {
  const auto value = request[boost::beast::string_view(name.data(), name.size())];
  return std::string(value.data(), value.size());
}

}  // namespace

ClientCall CallOf(const HttpRequest& request, absl::Time now) {
  ClientCall call;
  call.metadata = [&request](const char* key) -> std::string {
    const std::string_view name = key;
    // A client's id is no key of a generation: proxies give one to all requests of a page.
    if (name == "x-request-id") return "";
    std::string value = ValueOf(request, name);
    if (name == "authorization" && !absl::StartsWithIgnoreCase(value, "bearer")) {
      const std::string api_key = ValueOf(request, "x-api-key");
      if (!api_key.empty()) return absl::StrCat("Bearer ", api_key);
    }
    return value;
  };
  call.correlation_id = LoggedId(ValueOf(request, "x-request-id"));
  const absl::Duration timeout = ParseGrpcTimeout(call.metadata("grpc-timeout"));
  call.deadline = now + timeout;
  return call;
}

std::string DigestOfBody(const HttpRequest& request) {
  const auto path = request.target();
  std::vector<std::string_view> parts = {{path.data(), path.size()}, request.body()};
  const std::string division = ValueOf(request, kInferenceHeaderLength);
  if (!division.empty()) parts.emplace_back(division);
  return DigestOf(parts);
}

absl::StatusOr<std::optional<bool>> EventIdsOf(const HttpRequest& request) {
  const std::string value = ValueOf(request, "x-event-ids");
  if (value.empty()) return std::nullopt;
  if (value == "true") return true;
  if (value == "false") return false;
  return absl::InvalidArgumentError("x-event-ids must be true or false");
}

std::string LoggedId(std::string_view id) {
  std::string logged = absl::CHexEscape(std::string(id.substr(0, kMaxLoggedId)));
  if (id.size() > kMaxLoggedId) logged.append("...");
  return logged;
}

absl::Duration ParseGrpcTimeout(std::string_view text) {
  uint64_t value;
  if (text.size() < 2 || text.size() > 9 || !absl::ascii_isdigit(text[0]) ||
      !absl::SimpleAtoi(absl::string_view(text.data(), text.size() - 1), &value)) {
    return absl::InfiniteDuration();
  }
  switch (text.back()) {
    case 'H':
      return absl::Hours(value);
    case 'M':
      return absl::Minutes(value);
    case 'S':
      return absl::Seconds(value);
    case 'm':
      return absl::Milliseconds(value);
    case 'u':
      return absl::Microseconds(value);
    case 'n':
      return absl::Nanoseconds(value);
    default:
      return absl::InfiniteDuration();
  }
}

}  // namespace continuo::gateway::openai
