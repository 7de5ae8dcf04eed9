// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace continuo::gateway {

// Consistent hashing with many probes. Each worker has kPointsPerWorker points on a ring of 2^64
// positions, a hash has kNumProbes probes. The distance of a worker to a hash is the shortest way
// from one of the probes forward to one of the points; the place for a hash is the worker of the
// least distance. A distance depends on that worker alone, so a worker that comes or goes changes
// the place only of hashes that are its own. The numbers are the same in every build and every
// gateway, so that gateways agree without talking. Shares of workers differ by some 4 % (sigma).
inline constexpr int kPointsPerWorker = 32;
inline constexpr int kNumProbes = 12;

using RingProbes = std::array<uint64_t, kNumProbes>;  // sorted
RingProbes ProbesOf(uint64_t hash);

// The distance of the worker at `address`, without a ring.
uint64_t RingDistance(const RingProbes& probes, std::string_view address);

// The points of a set of workers, sorted. Immutable once it is built.
class HashRing {
 public:
  HashRing() = default;
  // The workers by number, with their addresses.
  explicit HashRing(const std::vector<std::pair<uint32_t, std::string_view>>& workers);

  // For tests.
  size_t num_points() const { return points_.size(); }
  // The number of the worker of the point at `index`, and its position.
  uint32_t worker(size_t index) const { return points_[index].worker; }
  uint64_t position(size_t index) const { return points_[index].position; }
  // The index of the first point at `position` or after it, round the ring. O(1) expected. Needs a
  // point.
  size_t Find(uint64_t position) const;
  // The index of the next point round the ring.
  size_t Next(size_t index) const { return index + 1 == points_.size() ? 0 : index + 1; }

 private:
  struct Point {
    uint64_t position;
    uint32_t worker;
  };
  std::vector<Point> points_;
  // The ring in 2^k equal arcs: the index of the first point in each, or after it.
  std::vector<uint32_t> arcs_;
  int shift_ = 0;  // A position's arc is its bits from here on.
};

}  // namespace continuo::gateway
