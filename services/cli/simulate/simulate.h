// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"
#include "services/cli/simulate/simulate_flags.h"

namespace continuo::cli {

// `continuo simulate`: runs a fleet on a virtual clock and reports what its clients would see.
// Returns the exit code.
int RunSimulate(const SimulateFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
