// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/tensor.h"

namespace continuo {

// What a CUDA device gives right now, beside whatever else it has in its memory: of it this takes 4
// GiB, and 384 MiB for each type of products.
class DeviceCeilings {
 public:
  // Of the first of the devices of "cuda:0,1".
  static absl::StatusOr<std::unique_ptr<DeviceCeilings>> Make(const std::string& devices);
  virtual ~DeviceCeilings() = default;

  virtual std::string name() const = 0;  // as it calls itself
  // Bytes/s of a kernel that only reads.
  virtual double ReadBandwidth() = 0;
  // Operations/s of the largest product, as a model's are called.
  virtual double Peak(kernels::WeightType type) = 0;
};

}  // namespace continuo
