// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/call_headers.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "services/base/status_macros.h"
#include "services/protocol/validate_request.h"

namespace continuo::gateway::openai {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

ClientCall CallOf(const HttpRequest& request, absl::Time now) {
  ClientCall call;
  call.metadata = [&request](const char* key) {
    const auto value = request[key];
    return std::string(value.data(), value.size());
  };
  const absl::Duration timeout = ParseGrpcTimeout(call.metadata("grpc-timeout"));
  call.deadline = now + timeout;
  return call;
}

absl::StatusOr<std::string> RequestIdOf(const HttpRequest& request, GenerateService& service) {
  const auto value = request["x-request-id"];
  if (value.empty()) return service.MakeRequestId();
  std::string id(value.data(), value.size());
  RETURN_IF_ERROR(protocol::ValidateId("x-request-id", id));
  return id;
}

std::string DecodePath(std::string_view path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && i + 2 < path.size() && HexDigit(path[i + 1]) >= 0 &&
        HexDigit(path[i + 2]) >= 0) {
      text.push_back(static_cast<char>(HexDigit(path[i + 1]) * 16 + HexDigit(path[i + 2])));
      i += 2;
    } else {
      text.push_back(path[i]);
    }
  }
  return text;
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
