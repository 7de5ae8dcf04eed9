// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/resolver.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/sorted_distinct.h"
#include "services/base/status_macros.h"
#include "services/base/watched_file.h"
#include "services/gateway/discovery/dns_resolver.h"
#include "services/gateway/discovery/kubernetes_resolver.h"

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

// A label of a DNS name, as names of Services and namespaces are.
bool IsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 && std::ranges::all_of(text, [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
}

// Parses what follows kubernetes:// in `target`: [HOST:PORT]/SERVICE[.NAMESPACE]:PORT. What is not
// given is taken from what Kubernetes gives each pod.
absl::StatusOr<KubernetesTarget> ParseKubernetes(const std::string& target,
                                                 const ResolverOptions& options,
                                                 std::string_view flag) {
  const auto invalid = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(flag), ": \"", target, "\" ", why));
  };
  constexpr char kForm[] =
      "is not kubernetes:///SERVICE.NAMESPACE:PORT with the number or the name of a port";
  const std::string rest = target.substr(std::string_view("kubernetes://").size());
  const size_t slash = rest.find('/'), colon = rest.rfind(':');
  if (slash == std::string::npos || colon == std::string::npos || colon < slash) {
    return invalid(kForm);
  }
  KubernetesTarget parsed;
  parsed.server.service_account = std::string(options.service_account);
  parsed.port = rest.substr(colon + 1);
  const std::string name = rest.substr(slash + 1, colon - slash - 1);
  const size_t dot = name.find('.');
  parsed.service = name.substr(0, dot);
  int number = 0;
  const bool is_number = absl::SimpleAtoi(parsed.port, &number);
  if (!IsLabel(parsed.service) || !IsLabel(parsed.port) ||
      (is_number && (number < 1 || number > 65535))) {
    return invalid(kForm);
  }
  if (dot != std::string::npos) {
    parsed.name_space = name.substr(dot + 1);
    if (!IsLabel(parsed.name_space)) return invalid(kForm);
  } else {
    const std::string path = absl::StrCat(parsed.server.service_account, "/namespace");
    const absl::StatusOr<std::string> text = ReadWholeFile(path, 4096);
    if (text.ok()) parsed.name_space = std::string(absl::StripAsciiWhitespace(*text));
    if (!IsLabel(parsed.name_space)) {
      return invalid(absl::StrCat("names no namespace, and ", path, " has none"));
    }
  }
  if (slash > 0) {
    ASSIGN_OR_RETURN(const HostPort server, ParseHostPort(rest.substr(0, slash), flag));
    parsed.server.host = server.host;
    parsed.server.port = absl::StrCat(server.port);
    return parsed;
  }
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    return invalid(
        "names no API server, and KUBERNETES_SERVICE_HOST and _PORT, which pods have, are not set");
  }
  parsed.server.host = host;
  parsed.server.port = port;
  return parsed;
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
  if (absl::StartsWith(target, "kubernetes://")) {
    ASSIGN_OR_RETURN(KubernetesTarget parsed, ParseKubernetes(target, options, flag));
    return std::make_unique<KubernetesResolver>(std::move(parsed), options);
  }
  const std::vector<std::string> addresses = absl::StrSplit(target, ',');
  for (const std::string& address : addresses)
    RETURN_IF_ERROR(ParseHostPort(address, flag).status());
  return std::make_unique<StaticResolver>(SortedDistinct(addresses));
}

}  // namespace continuo::gateway
