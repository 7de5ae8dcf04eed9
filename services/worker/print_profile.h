// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

#include "services/worker/config.h"

namespace continuo::worker {

// Loads the model as a start with these flags would, measures its steps, and prints the file of
// `continuo simulate --cost` to `out` (--calibrate). Opens no port. Returns the exit code; what
// fails is logged.
int PrintProfile(const WorkerConfig& config, std::ostream& out);

}  // namespace continuo::worker
