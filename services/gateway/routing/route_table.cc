// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/routing/route_table.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "services/gateway/routing/policy.h"

namespace continuo::gateway {
namespace {

bool IsSameWorker(const WorkerLoad& a, const WorkerLoad& b) {
  return a.address == b.address && a.worker == b.worker && a.model == b.model &&
         a.fingerprint == b.fingerprint && a.tokenizer_fingerprint == b.tokenizer_fingerprint &&
         a.pool == b.pool && a.pool_weight == b.pool_weight;
}

}  // namespace

bool RouteTable::IsShared(const Loads& a, const Loads& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x == y || IsSameWorker(*x, *y); });
}

RouteTable::RouteTable(const Loads& workers) : group_of_(workers.size()) {
  // Sorted by model, then as every gateway sorts them.
  using Key = std::tuple<std::string_view, int, double, std::string_view, std::string_view>;
  std::map<Key, std::vector<uint32_t>> members;
  by_address_.reserve(workers.size());
  by_name_.reserve(workers.size());
  for (uint32_t i = 0; i < workers.size(); ++i) {
    const WorkerLoad& load = *workers[i];
    members[{load.model, load.pool, load.pool_weight, load.fingerprint, load.tokenizer_fingerprint}]
        .push_back(i);
    by_address_[load.address].push_back(i);
    by_name_[load.worker].push_back(i);
  }
  groups_.reserve(members.size());
  for (auto& [key, indexes] : members) {
    const auto& [model, pool, weight, fingerprint, tokenizer] = key;
    const auto number = static_cast<uint32_t>(groups_.size());
    const auto range = by_model_.try_emplace(model, Range{number, number}).first;
    range->second.end = number + 1;
    std::vector<std::pair<uint32_t, std::string_view>> addresses;
    addresses.reserve(indexes.size());
    for (const uint32_t i : indexes) {
      group_of_[i] = number;
      addresses.emplace_back(i, workers[i]->address);
    }
    groups_.push_back({.number = number,
                       .fingerprint = std::string(fingerprint),
                       .tokenizer_fingerprint = std::string(tokenizer),
                       .pool = pool,
                       .pool_weight = weight,
                       .members = std::move(indexes),
                       .ring = HashRing(addresses)});
  }
}

std::span<const RouteGroup> RouteTable::GroupsOf(std::string_view model) const {
  const auto at = by_model_.find(model);
  if (at == by_model_.end()) return {};
  return std::span(groups_).subspan(at->second.begin, at->second.end - at->second.begin);
}

std::span<const uint32_t> RouteTable::AtAddress(std::string_view address) const {
  const auto at = by_address_.find(address);
  return at == by_address_.end() ? std::span<const uint32_t>() : at->second;
}

std::span<const uint32_t> RouteTable::Named(std::string_view worker) const {
  const auto at = by_name_.find(worker);
  return at == by_name_.end() ? std::span<const uint32_t>() : at->second;
}

std::vector<GroupLoad> RouteTable::Summarise(const Loads& workers) const {
  std::vector<GroupLoad> summaries(groups_.size());
  for (const RouteGroup& group : groups_) {
    GroupLoad& summary = summaries[group.number];
    summary.serving.reserve(group.members.size());
    for (const uint32_t i : group.members) {
      const WorkerLoad& load = *workers[i];
      if (load.state != WorkerState::kServing) continue;
      summary.serving.push_back(i);
      const Candidate candidate = {.load = &load};
      summary.cost += Cost({}, candidate);
      summary.cost_per_token += CostPerToken(load);
      if (IsFree({}, candidate)) summary.free.push_back(i);
    }
  }
  return summaries;
}

}  // namespace continuo::gateway
