// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

namespace continuo::gateway {

// The address of a worker, and the pool that it belongs to (PoolSpec).
struct WorkerAddress {
  WorkerAddress(std::string address, int pool = 0, double weight = 1)  // NOLINT: by address alone
      : address(std::move(address)), pool(pool), weight(weight) {}

  std::string address;  // host:port
  int pool;             // The index of the pool in --workers.
  double weight;        // The weight of the pool.
};

}  // namespace continuo::gateway
