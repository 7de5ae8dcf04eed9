// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace continuo::gateway {

// Deterministic subsets of a large pool: each gateway watches some of the workers, and all gateways
// agree on who watches whom without talking. Each worker ranks the gateways by a hash of both, and
// is watched by the first ones. So every worker is in the same number of subsets, a gateway that
// comes or goes changes only what is its own, and a worker that comes or goes changes nothing else.

// The number of gateways that watch each worker, so that a gateway watches about `subset_size` of
// `num_workers`, or some more: the number has three significant bits, so that it seldom changes
// with the fleet. At least two, where there are two, since a gateway may fail. All of them where
// the pool has no more than `subset_size` workers, or `subset_size` is 0. Each of the numbers is at
// most 2^30.
size_t GatewaysPerWorker(size_t subset_size, size_t num_workers, size_t num_gateways);

// The workers that `self` watches, in their order. `gateways` are the addresses of all gateways;
// `self` counts as one of them.
std::vector<std::string> SubsetOf(const std::vector<std::string>& workers,
                                  std::vector<std::string> gateways, const std::string& self,
                                  size_t subset_size);

// The one of `gateways` that has a host of this machine and the port of this process; one made of
// the first host where none has. `hosts` are LocalHosts().
std::string OwnAddress(const std::vector<std::string>& gateways,
                       const std::vector<std::string>& hosts, int port);
// The addresses of this machine's interfaces, IPv6 in brackets, loopback last.
std::vector<std::string> LocalHosts();

}  // namespace continuo::gateway
