// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "kernels/adapters/adapter_ops.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "services/worker/model/adapter/adapter.h"

namespace continuo::model {

// The rows of a pass that have an adapter, those of one adapter together.
struct AdapterRows {
  struct Group {
    int64_t begin = 0, end = 0;            // of `rows`
    std::span<const AdapterLayer> layers;  // of this rank, in the device's memory
  };
  kernels::Tensor rows;  // i32 [entries], in the device's memory
  std::vector<Group> groups;
};

// What adapters add to the products of a decoder's layers (exactness: adapters). Rows without an
// adapter stay as they are. Made once for a decoder.
class AdapterLayers {
 public:
  // The references outlive the object.
  AdapterLayers(kernels::Device& device, kernels::Communicator& communicator)
      : device_(device), comm_(communicator) {}

  // The memory of the products of A, f32 [rows of a pass, kMaxAdapterWidth]; without it no pass has
  // adapters.
  void SetMemory(kernels::Tensor inner) { inner_ = inner; }
  // The rows of the current pass, which live until the next call; null: none has an adapter.
  void Begin(const AdapterRows* rows) { rows_ = rows; }

  // Returns whether a row's adapter changes a matrix of the layer that reads this input.
  bool Changes(int layer, AdapterInput input) const;

  // A matrix's product: its columns of this rank, from `column` of `out` on.
  struct Output {
    AdaptedMatrix matrix;
    kernels::Tensor out;
    int64_t column = 0;
  };
  // Adds to the products of the matrices that read `input`, whose rows are x, what adapters make of
  // x. Every rank has x whole.
  void Add(int layer, AdapterInput input, kernels::Tensor x, std::initializer_list<Output> outputs);
  // The same for a product whose K the ranks split: x is this rank's columns in K splits, and `sum`
  // the product, f32, summed over the ranks. Every rank calls it.
  void AddSplitK(int layer, AdaptedMatrix matrix, kernels::Tensor x,
                 std::span<const int64_t> splits, kernels::Tensor sum);

 private:
  // Multiplies x with the As; returns the products, of all rows with an adapter.
  kernels::Tensor Shrink(int layer, AdapterInput input, kernels::Tensor x,
                         std::span<const int64_t> splits);
  void Expand(int layer, const Output& output, kernels::Tensor inner);

  kernels::Device& device_;
  kernels::Communicator& comm_;
  kernels::Tensor inner_;
  const AdapterRows* rows_ = nullptr;
  std::vector<kernels::ShrinkGroup> shrink_groups_;  // of the current call
  std::vector<kernels::ExpandGroup> expand_groups_;
};

}  // namespace continuo::model
