// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cpu/isa/kernel_table.h"

namespace continuo::kernels::cpu {

// Returns the fastest table of each name that this build and machine can run, best last. Never
// empty.
std::vector<const KernelTable*> AvailableKernels();

// Returns all tables that they can run; those of one name have the same bits and follow one
// another, the fastest last. Where the processor has AMX, each call asks Linux to let all threads
// of the process use it; if that is refused, there are no tables with AMX. Any thread may call.
std::vector<const KernelTable*> AllKernels();

// Returns the table of that name, or for "auto" the best available one. InvalidArgument lists what
// is available.
absl::StatusOr<const KernelTable*> PickKernels(std::string_view isa);

}  // namespace continuo::kernels::cpu
