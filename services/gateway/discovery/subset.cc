// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/subset.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/sorted_distinct.h"

namespace continuo::gateway {
namespace {

constexpr size_t kLeastGateways = 2;

uint64_t Hash(const std::string& text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

// Rounds up to three significant bits.
size_t RoundUp(size_t number) {
  const int dropped = std::max(0, static_cast<int>(std::bit_width(number)) - 3);
  const size_t unit = size_t{1} << dropped;
  return (number + unit - 1) / unit * unit;
}

}  // namespace

size_t GatewaysPerWorker(size_t subset_size, size_t num_workers, size_t num_gateways) {
  if (subset_size == 0 || num_workers <= subset_size) return num_gateways;
  const size_t needed = (subset_size * num_gateways + num_workers - 1) / num_workers;
  return std::min(num_gateways, std::max(kLeastGateways, RoundUp(needed)));
}

std::vector<std::string> SubsetOf(const std::vector<std::string>& workers,
                                  std::vector<std::string> gateways, const std::string& self,
                                  size_t subset_size) {
  gateways.push_back(self);
  gateways = SortedDistinct(std::move(gateways));
  const size_t per_worker = GatewaysPerWorker(subset_size, workers.size(), gateways.size());
  if (per_worker >= gateways.size()) return workers;

  std::vector<uint64_t> others;
  for (const std::string& gateway : gateways) {
    if (gateway != self) others.push_back(Hash(gateway, /*seed=*/4));
  }
  const uint64_t own = Hash(self, /*seed=*/4);
  std::vector<std::string> subset;
  std::ranges::copy_if(workers, std::back_inserter(subset), [&](const std::string& worker) {
    const uint64_t score = Hash(worker, own);
    const auto num_before = std::ranges::count_if(others, [&](uint64_t other) {
      return std::tuple(Hash(worker, other), other) > std::tuple(score, own);
    });
    return static_cast<size_t>(num_before) < per_worker;
  });
  return subset;
}

std::string OwnAddress(const std::vector<std::string>& gateways,
                       const std::vector<std::string>& hosts, int port) {
  for (const std::string& host : hosts) {
    const std::string address = absl::StrCat(host, ":", port);
    if (std::ranges::find(gateways, address) != gateways.end()) return address;
  }
  return absl::StrCat(hosts.empty() ? "localhost" : hosts.front(), ":", port);
}

std::vector<std::string> LocalHosts() {
  std::vector<std::string> hosts, loopback;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text = {};
    std::vector<std::string>& to = (entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : hosts;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
      to.emplace_back(text.data());
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      inet_ntop(AF_INET6, &address->sin6_addr, text.data(), text.size());
      to.push_back(absl::StrCat("[", text.data(), "]"));
    }
  }
  freeifaddrs(list);
  hosts.insert(hosts.end(), loopback.begin(), loopback.end());
  return hosts;
}

}  // namespace continuo::gateway
