// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace continuo::kernels {

// Says how a device computes: one value from the flags to the kernels, embedded by the structs that
// need it. A replica of several devices has one, too.
struct DeviceOptions {
  // "cpu", or in builds with CUDA "cuda:0". A replica also takes "cuda:0,1,2,3": a rank on each.
  std::string device = "cpu";
  // Host threads of the device, the caller's included. Of a replica: of all ranks together, each of
  // which has at least one.
  int num_threads = 1;
  // CPU: the instruction set: auto, scalar, avx2, avx512, …
  std::string isa = "auto";
  // CUDA: a row's bits do not depend on the other rows. The CPU's never do.
  bool deterministic = false;
  // CUDA: products of fp8 numbers are summed in tensor cores alone, faster and less exactly.
  bool fp8_fast_accumulation = false;
  // CUDA: steps that only decode are captured as CUDA graphs and replayed.
  bool graphs = true;
  // CUDA: programmatic dependent launch: a kernel may start while the one before it ends. It
  // changes no result.
  bool pdl = true;
  // CUDA: attention of prefill rows uses warpgroup products (wgmma) where the device has them
  // (compute capability 9.0) and `deterministic` is off.
  bool wgmma_prefill = true;
};

// Switches for CUDA developers, each a change of one field from its default: "no_pdl",
// "no_wgmma_prefill".
std::vector<std::string> ExperimentNames();

// Applies a comma-separated list of experiments; empty: none. InvalidArgument names the unknown one
// and lists the known ones.
absl::Status ApplyExperiments(std::string_view list, DeviceOptions& options);

}  // namespace continuo::kernels
