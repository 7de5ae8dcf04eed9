// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "services/worker/model/adapter/adapter_pool.h"
#include "services/worker/model/network/adapter_layers.h"
#include "services/worker/model/run/device_adapters.h"
#include "services/worker/model/run/device_array.h"
#include "services/worker/model/step_plan.h"

namespace continuo::model {

// The rows of a step that have adapters, for one rank. Keeps the adapters in memory until their
// step is released; two steps may be in flight, 0 and 1. One thread at a time.
class AdapterStep {
 public:
  // The device outlives this.
  AdapterStep(kernels::Device& device, int rank)
      : adapters_(device, rank), row_arrays_{DeviceArray(device), DeviceArray(device)} {}

  // Takes memory for steps of max_rows rows, and as DeviceAdapters::Reserve. The adapters in
  // `loaded` get the slots that fit them best.
  absl::Status Reserve(int max_rows, std::span<const int64_t> slot_bytes,
                       std::span<const std::shared_ptr<const Adapter>> loaded);
  // Reads the adapters of a plan, whose step is enqueued next. `wanted` are its distinct sampled
  // rows, ascending. Internal where `pool` has not every adapter that the plan names.
  absl::Status Set(int step, const StepPlan& plan, std::span<const int32_t> wanted,
                   const AdapterPool& pool);
  // The step is over: it does not read its adapters any more.
  void Release(int step) { held_[static_cast<size_t>(step)].clear(); }

  // Of the step that was set last. Null: no row has an adapter. Valid until the next call of Set,
  // or that step's Release.
  const AdapterRows* rows() const { return rows_.groups.empty() ? nullptr : &rows_; }
  const AdapterRows* wanted() const { return wanted_.groups.empty() ? nullptr : &wanted_; }

 private:
  // A row, or a place among the wanted ones, and its adapter.
  struct Entry {
    int32_t adapter = 0, row = 0;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  using Held = std::vector<std::shared_ptr<const Adapter>>;
  absl::Status Group(const AdapterPool& pool, DeviceArray& array, AdapterRows& rows, Held& held);

  DeviceAdapters adapters_;
  std::array<DeviceArray, 2> row_arrays_;  // of rows_ and wanted_
  std::vector<Entry> entries_;
  std::vector<int32_t> row_ids_;  // of a group's entries, while they are uploaded
  std::vector<int32_t> adapter_of_row_;
  std::array<Held, 2> held_;  // of the steps in flight
  AdapterRows rows_, wanted_;
};

}  // namespace continuo::model
