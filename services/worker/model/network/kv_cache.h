// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace continuo::model {

// The bytes behind the engine's block ids: one rank's keys and values of all layers that
// have them. A block id names the same place in every layer. Without such layers blocks are ids
// alone.
class KvCache {
 public:
  // The shape of one token in one layer on this rank; 0 heads where it owns none.
  struct Shape {
    int num_heads = 0, head_dim = 0;
    kernels::DType dtype = kernels::DType::kF32;
  };

  // ResourceExhausted where the device has not enough memory. `device` outlives the result. A
  // device with memory of its own gets one spare block, whose number is num_blocks(), for rows that
  // only pad a step.
  static absl::StatusOr<std::unique_ptr<KvCache>> Make(kernels::Device& device, int num_layers,
                                                       int num_blocks, int block_size, Shape shape);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Changes the number of blocks, which are empty afterwards. Nothing may use the cache meanwhile,
  // and graphs captured with it become invalid.
  absl::Status Resize(int num_blocks);

  // Returns the bytes of one block in all layers.
  static int64_t BlockBytes(int num_layers, int block_size, const Shape& shape);

  // Returns `kv` with this layer's blocks filled in.
  kernels::PagedKv Layer(int layer, kernels::PagedKv kv) const;
  // Copies whole blocks in every layer; pairs i32 [n, 2] of (from, to), in order.
  void CopyBlocks(kernels::Tensor pairs);

  int num_blocks() const { return num_blocks_; }
  int block_size() const { return block_size_; }
  int64_t bytes() const { return (num_blocks_ + num_spare_) * block_bytes_; }

 private:
  explicit KvCache(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  uint8_t* memory_ = nullptr;  // layer by layer
  int num_layers_ = 0, num_blocks_ = 0, num_spare_ = 0, block_size_ = 0;
  Shape shape_;
  int64_t block_bytes_ = 0;
};

}  // namespace continuo::model
