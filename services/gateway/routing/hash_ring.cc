// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/hash_ring.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include "services/base/random.h"

namespace continuo::gateway {
namespace {

SplitMix64 PointsOf(std::string_view address) {
  return SplitMix64(XXH3_64bits_withSeed(address.data(), address.size(), /*seed=*/3));
}

}  // namespace

RingProbes ProbesOf(uint64_t hash) {
  RingProbes probes;
  SplitMix64 mixer(hash);
  for (uint64_t& probe : probes) probe = mixer.Next();
  std::ranges::sort(probes);
  return probes;
}

uint64_t RingDistance(const RingProbes& probes, std::string_view address) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  SplitMix64 points = PointsOf(address);
  for (int i = 0; i < kPointsPerWorker; ++i) {
    const uint64_t point = points.Next();
    // The last probe that is not beyond the point; before the first one comes the last, round the
    // ring.
    const auto beyond = std::ranges::upper_bound(probes, point);
    const uint64_t probe = beyond == probes.begin() ? probes.back() : *(beyond - 1);
    least = std::min(least, point - probe);
  }
  return least;
}

HashRing::HashRing(const std::vector<std::pair<uint32_t, std::string_view>>& workers) {
  // About as many arcs as points, and at least two, so that the shift is less than 64.
  const size_t num_points = workers.size() * kPointsPerWorker;
  const size_t num_arcs = std::bit_ceil(std::max<size_t>(num_points, 2));
  shift_ = 64 - std::countr_zero(num_arcs);
  std::vector<Point> points;
  points.reserve(num_points);
  arcs_.resize(num_arcs + 1);
  for (const auto& [number, address] : workers) {
    SplitMix64 mixer = PointsOf(address);
    for (int i = 0; i < kPointsPerWorker; ++i) {
      points.push_back({mixer.Next(), number});
      ++arcs_[(points.back().position >> shift_) + 1];
    }
  }
  // Sorts by arc, then the few points of each.
  for (size_t arc = 1; arc <= num_arcs; ++arc) arcs_[arc] += arcs_[arc - 1];
  points_.resize(num_points);
  std::vector<uint32_t> ends = arcs_;
  for (const Point& point : points) points_[ends[point.position >> shift_]++] = point;
  for (size_t arc = 0; arc < num_arcs; ++arc) {
    std::sort(points_.begin() + arcs_[arc], points_.begin() + arcs_[arc + 1],
              [](const Point& a, const Point& b) {
                return std::tie(a.position, a.worker) < std::tie(b.position, b.worker);
              });
  }
}

size_t HashRing::Find(uint64_t position) const {
  size_t index = arcs_[position >> shift_];
  while (index < points_.size() && points_[index].position < position) ++index;
  return index == points_.size() ? 0 : index;
}

}  // namespace continuo::gateway
