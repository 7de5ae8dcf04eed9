// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// The tables that are built in and that this machine can run, best last. Never empty.
std::vector<const KernelTable*> AvailableKernels();

// Returns those and the slower tables that have a name and its bits, each name's fastest last.
std::vector<const KernelTable*> AllKernels();

// "auto": the best available one. InvalidArgument lists what is available.
absl::StatusOr<const KernelTable*> PickKernels(std::string_view isa);

}  // namespace continuo::kernels::cpu
