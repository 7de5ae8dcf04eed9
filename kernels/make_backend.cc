// SPDX-License-Identifier: Apache-2.0
// The only switch on device names.
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/pick_kernels.h"
#include "services/base/status_macros.h"

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
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", options.device, "\" is not available: this build has cpu"));
}

}  // namespace continuo
