// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/adapter/adapter.h"

namespace continuo::model {

// One rank's adapters where its device reads them: the host's memory, or copies in slots of the
// device's memory, which are taken once. One thread at a time.
class DeviceAdapters {
 public:
  // The device outlives this.
  DeviceAdapters(kernels::Device& device, int rank) : device_(device), rank_(rank) {}
  ~DeviceAdapters();
  DeviceAdapters(const DeviceAdapters&) = delete;
  DeviceAdapters& operator=(const DeviceAdapters&) = delete;

  // Takes memory for one adapter of each of these sizes in bytes; none of a device that shares the
  // host's memory. ResourceExhausted where there is not enough.
  absl::Status Reserve(std::span<const int64_t> slot_bytes);

  // The adapter's layers for ops that are enqueued before the next call that finds no copy of its
  // adapter. Such a call enqueues the copy, into a slot whose adapter nobody holds any more.
  // Internal where no slot has room for it.
  absl::StatusOr<std::span<const AdapterLayer>> Find(const std::shared_ptr<const Adapter>& adapter);

 private:
  struct Slot {
    std::byte* memory = nullptr;
    int64_t bytes = 0;
    std::weak_ptr<const Adapter> adapter;
    std::vector<AdapterLayer> layers;
  };
  // Fills the slot.
  void Copy(const std::shared_ptr<const Adapter>& adapter, Slot& slot);

  kernels::Device& device_;
  const int rank_;
  std::vector<Slot> slots_;  // ascending by their size
};

}  // namespace continuo::model
