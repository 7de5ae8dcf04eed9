// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/resolver.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"
#include "services/gateway/discovery/dns_resolver.h"

namespace continuo::gateway {
namespace {

// A fixed list.
class StaticResolver : public Resolver {
 public:
  explicit StaticResolver(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}
  void Start(OnAddresses on_addresses) override { on_addresses(addresses_); }
  void Stop() override {}
  void Refresh() override {}

 private:
  const std::vector<std::string> addresses_;
};

struct HostPort {
  std::string host;
  int port = 0;
};

// Parses "host:port" or "[v6]:port".
absl::StatusOr<HostPort> ParseHostPort(const std::string& text, std::string_view flag) {
  const size_t colon = text.rfind(':');
  HostPort result;
  if (colon != std::string::npos && absl::SimpleAtoi(text.substr(colon + 1), &result.port) &&
      result.port >= 1 && result.port <= 65535) {
    result.host = text.substr(0, colon);
    const bool bracketed = absl::StartsWith(result.host, "[") && absl::EndsWith(result.host, "]");
    if (bracketed) result.host = result.host.substr(1, result.host.size() - 2);
    const bool has_colon = result.host.find(':') != std::string::npos;
    if (!result.host.empty() && has_colon == bracketed &&
        result.host.find_first_of("/ ") == std::string::npos) {
      return result;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      std::string(flag), ": \"", text, "\" is not host:port with a port from 1 to 65535"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Resolver>> MakeResolver(const std::string& target,
                                                       const ResolverOptions& options,
                                                       std::string_view flag) {
  if (absl::StartsWith(target, "dns://")) {
    const std::string rest = target.substr(6);
    const size_t slash = rest.find('/');
    if (slash == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(std::string(flag), ": \"", target, "\" is not dns:///NAME:PORT"));
    }
    std::string server = rest.substr(0, slash);
    if (!server.empty()) RETURN_IF_ERROR(ParseHostPort(server, flag).status());
    ASSIGN_OR_RETURN(const HostPort name, ParseHostPort(rest.substr(slash + 1), flag));
    return std::make_unique<DnsResolver>(std::move(server), name.host, name.port, options);
  }
  std::vector<std::string> addresses = absl::StrSplit(target, ',');
  for (const std::string& address : addresses)
    RETURN_IF_ERROR(ParseHostPort(address, flag).status());
  std::ranges::sort(addresses);
  const auto repeated = std::ranges::unique(addresses);
  addresses.erase(repeated.begin(), repeated.end());
  return std::make_unique<StaticResolver>(std::move(addresses));
}

}  // namespace continuo::gateway
