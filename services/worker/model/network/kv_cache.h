// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "services/worker/model/checkpoint/shard.h"
#include "services/worker/model/description/config.h"

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
  // only pad a step. There is a shape for each layer.
  static absl::StatusOr<std::unique_ptr<KvCache>> Make(kernels::Device& device,
                                                       std::vector<Shape> layers, int num_blocks,
                                                       int block_size);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // Changes the number of blocks, which are empty afterwards. Nothing may use the cache meanwhile,
  // and graphs captured with it become invalid.
  absl::Status Resize(int num_blocks);

  // Returns the shapes of all layers with keys and values of their own, an MTP layer too.
  static std::vector<Shape> Shapes(const ModelConfig& config, const Shard& shard,
                                   kernels::DType dtype);
  // Returns the bytes of one block in all layers.
  static int64_t BlockBytes(std::span<const Shape> layers, int block_size);

  // Returns `kv` with this layer's blocks filled in.
  kernels::PagedKv Layer(int layer, kernels::PagedKv kv) const;
  // Copies whole blocks in every layer; pairs i32 [n, 2] of (from, to), in order.
  void CopyBlocks(kernels::Tensor pairs);

  int num_blocks() const { return num_blocks_; }
  int block_size() const { return block_size_; }
  int64_t bytes() const { return (num_blocks_ + num_spare_) * bytes_before_.back(); }

 private:
  explicit KvCache(kernels::Device& device) : device_(device) {}

  kernels::Device& device_;
  uint8_t* memory_ = nullptr;  // layer by layer
  int num_blocks_ = 0, num_spare_ = 0, block_size_ = 0;
  std::vector<Shape> layers_;
  // Bytes of one block in the layers before each one, and in all.
  std::vector<int64_t> bytes_before_;
};

}  // namespace continuo::model
