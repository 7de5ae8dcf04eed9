// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "services/gateway/routing/hash_ring.h"
#include "services/gateway/routing/worker_load.h"

namespace continuo::gateway {

// The workers of one model that are alike to routing, whatever their load.
struct RouteGroup {
  uint32_t number = 0;  // Counted over all groups of the table.
  std::string fingerprint, tokenizer_fingerprint;
  int pool = 0;
  double pool_weight = 1;
  std::vector<uint32_t> members;  // Indexes of the snapshot's workers, ascending.
  HashRing ring;                  // Of the members.
};

// The load of a group in one snapshot.
struct GroupLoad {
  std::vector<uint32_t> serving;  // The members that serve, ascending.
  std::vector<uint32_t> free;     // Those of them that begin a short prompt at once, as reported.
  double cost = 0;                // The sum of the Cost of a request without a prompt.
  double cost_per_token = 0;      // The sum of what a token of a prompt adds to it.
};

// Finds the workers of a snapshot by what a request asks for. It depends on who the workers are and
// not on their states and loads, so most snapshots share one. Immutable.
class RouteTable {
 public:
  using Loads = std::vector<std::shared_ptr<const WorkerLoad>>;

  explicit RouteTable(const Loads& workers);
  // True if the table of `a` is also that of `b`.
  static bool IsShared(const Loads& a, const Loads& b);

  // Empty where no worker has the model.
  std::span<const RouteGroup> GroupsOf(std::string_view model) const;
  // The indexes of the workers at an address, one for each model, or of a name.
  std::span<const uint32_t> AtAddress(std::string_view address) const;
  std::span<const uint32_t> Named(std::string_view worker) const;
  // The number of the group of the worker at `index`.
  uint32_t GroupOf(uint32_t index) const { return group_of_[index]; }

  // The loads of the groups, by their numbers.
  std::vector<GroupLoad> Summarise(const Loads& workers) const;

 private:
  // Finds a std::string_view among strings.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  template <typename T>
  using ByText = absl::flat_hash_map<std::string, T, Hash, std::equal_to<>>;
  using Indexes = ByText<absl::InlinedVector<uint32_t, 2>>;
  struct Range {
    uint32_t begin = 0, end = 0;
  };

  std::vector<RouteGroup> groups_;  // Those of a model are adjacent.
  ByText<Range> by_model_;          // In groups_.
  std::vector<uint32_t> group_of_;
  Indexes by_address_, by_name_;
};

}  // namespace continuo::gateway
