// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/device_adapters.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr int64_t kPiece = int64_t{16} << 20;  // of a copy, which the device stages

}  // namespace

DeviceAdapters::~DeviceAdapters() {
  for (const Slot& slot : slots_) device_.Free(slot.memory);
}

absl::Status DeviceAdapters::Reserve(std::span<const int64_t> slot_bytes) {
  if (device_.SharesHostMemory()) return absl::OkStatus();
  for (const int64_t bytes : slot_bytes) {
    ASSIGN_OR_RETURN(void* const memory, device_.Allocate(static_cast<size_t>(bytes)));
    slots_.push_back({.memory = static_cast<std::byte*>(memory), .bytes = bytes});
  }
  std::ranges::sort(slots_, {}, &Slot::bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::span<const AdapterLayer>> DeviceAdapters::Find(
    const std::shared_ptr<const Adapter>& adapter) {
  if (device_.SharesHostMemory()) return adapter->layers(rank_);
  const auto bytes = static_cast<int64_t>(adapter->memory(rank_).size());
  Slot* free = nullptr;
  for (Slot& slot : slots_) {
    const std::shared_ptr<const Adapter> owner = slot.adapter.lock();
    if (owner == adapter) return slot.layers;
    if (free == nullptr && owner == nullptr && slot.bytes >= bytes) free = &slot;
  }
  if (free == nullptr) {
    return absl::InternalError(absl::StrCat("no slot of ", slots_.size(), " has room for the ",
                                            bytes, " bytes of an adapter"));
  }
  Copy(adapter, *free);
  return free->layers;
}

// Steps that read the slot's last adapter were enqueued before, so the copy waits for them.
void DeviceAdapters::Copy(const std::shared_ptr<const Adapter>& adapter, Slot& slot) {
  const std::span<const std::byte> from = adapter->memory(rank_);
  const auto bytes = static_cast<int64_t>(from.size());
  for (int64_t at = 0; at < bytes; at += kPiece) {
    const int64_t n = std::min(kPiece, bytes - at);
    device_.CopyIn({slot.memory + at, kernels::DType::kI8, {n, 1, 1}}, from.data() + at);
  }
  const auto layers = adapter->layers(rank_);
  slot.layers.assign(layers.begin(), layers.end());
  const auto move = [&](kernels::Tensor& tensor) {
    if (tensor.data == nullptr) return;
    tensor.data = slot.memory + (static_cast<const std::byte*>(tensor.data) - from.data());
  };
  for (AdapterLayer& layer : slot.layers) {
    for (kernels::Tensor& a : layer.a) move(a);
    for (AdapterLayer::Expansion& expansion : layer.b) move(expansion.b);
  }
  slot.adapter = adapter;
}

}  // namespace continuo::model
