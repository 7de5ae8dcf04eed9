// SPDX-License-Identifier: Apache-2.0
// The only switch on device names.
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/pick_kernels.h"
#include "services/base/status_macros.h"
#if CONTINUO_CUDA
#include "absl/strings/match.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#endif

namespace continuo {

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const BackendOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.num_threads < 1 || options.num_threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_threads is ", options.num_threads, ", must be 1 to ", kMaxThreads));
  }
  if (options.device == "cpu") {
    ASSIGN_OR_RETURN(const cpu::KernelTable* kernels, cpu::PickKernels(options.isa));
    return std::make_unique<cpu::CpuBackend>(*kernels, options.num_threads);
  }
#if CONTINUO_CUDA
  constexpr const char* kHas = "cpu and cuda:N";
  if (absl::StartsWith(options.device, "cuda")) {
    ASSIGN_OR_RETURN(const std::vector<int> indices, cuda::ParseDevices(options.device));
    if (indices.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("device \"", options.device, "\": a backend has one device"));
    }
    ASSIGN_OR_RETURN(const std::vector<cuda::Device> devices, cuda::FindDevices(indices));
    return cuda::CudaBackend::Make({.device = devices[0],
                                    .num_threads = options.num_threads,
                                    .deterministic = options.deterministic});
  }
#else
  constexpr const char* kHas = "cpu";
#endif
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", options.device, "\" is not available: this build has ", kHas));
}

}  // namespace continuo
