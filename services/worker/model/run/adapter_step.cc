// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/adapter_step.h"

#include <algorithm>
#include <utility>

#include "services/base/status_macros.h"

namespace continuo::model {

absl::Status AdapterStep::Reserve(int max_rows, std::span<const int64_t> slot_bytes,
                                  std::span<const std::shared_ptr<const Adapter>> loaded) {
  for (DeviceArray& array : row_arrays_) {
    RETURN_IF_ERROR(array.Reserve(static_cast<size_t>(max_rows)));
  }
  RETURN_IF_ERROR(adapters_.Reserve(slot_bytes));
  for (const std::shared_ptr<const Adapter>& adapter : loaded) {
    RETURN_IF_ERROR(adapters_.Find(adapter).status());
  }
  return absl::OkStatus();
}

absl::Status AdapterStep::Set(int step, const StepPlan& plan, std::span<const int32_t> wanted,
                              const AdapterPool& pool) {
  Held& held = held_[static_cast<size_t>(step)];
  held.clear();
  entries_.clear();
  adapter_of_row_.assign(plan.token_ids.size(), kNoAdapter);
  for (size_t s = 0; s < plan.adapters.size(); ++s) {
    if (plan.adapters[s] == kNoAdapter) continue;
    for (int32_t row = plan.query_begin[s]; row < plan.query_begin[s + 1]; ++row) {
      adapter_of_row_[static_cast<size_t>(row)] = plan.adapters[s];
      entries_.push_back({plan.adapters[s], row});
    }
  }
  RETURN_IF_ERROR(Group(pool, row_arrays_[0], rows_, held));
  entries_.clear();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int32_t adapter = adapter_of_row_[static_cast<size_t>(wanted[i])];
    if (adapter != kNoAdapter) entries_.push_back({adapter, static_cast<int32_t>(i)});
  }
  return Group(pool, row_arrays_[1], wanted_, held);
}

absl::Status AdapterStep::Group(const AdapterPool& pool, DeviceArray& array, AdapterRows& rows,
                                Held& held) {
  rows.groups.clear();
  row_ids_.clear();
  std::ranges::sort(entries_);
  for (size_t begin = 0; begin < entries_.size();) {
    const int32_t adapter = entries_[begin].adapter;
    const auto first = static_cast<int64_t>(begin);
    for (; begin < entries_.size() && entries_[begin].adapter == adapter; ++begin) {
      row_ids_.push_back(entries_[begin].row);
    }
    ASSIGN_OR_RETURN(std::shared_ptr<const Adapter> found, pool.Find(adapter));
    held.push_back(std::move(found));
    ASSIGN_OR_RETURN(const std::span<const AdapterLayer> layers, adapters_.Find(held.back()));
    rows.groups.push_back({first, static_cast<int64_t>(begin), layers});
  }
  ASSIGN_OR_RETURN(rows.rows, array.Upload(row_ids_));
  return absl::OkStatus();
}

}  // namespace continuo::model
