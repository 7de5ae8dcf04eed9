// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace continuo {

// Measures what a CUDA device delivers right now, beside whatever else it has in its memory. This
// takes 4 GiB of it, and 384 MiB for each type of product.
class DeviceCeilings {
 public:
  // Makes those of the first device of "cuda:0,1".
  static absl::StatusOr<std::unique_ptr<DeviceCeilings>> Make(const std::string& devices);
  virtual ~DeviceCeilings() = default;

  virtual std::string name() const = 0;  // the device's own name
  // Bytes/s of a kernel that only reads.
  virtual double ReadBandwidth() = 0;
  // Operations/s of the largest product, called as a model calls it.
  virtual double Peak(kernels::WeightType type) = 0;
};

}  // namespace continuo
