// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

#include "services/worker/config.h"

namespace continuo::worker {

// Prints what --describe asks for to `out`: the model that a start with these flags would load, or
// the registry. Reads no weights and opens no port. Returns the exit code: 0 where the worker would
// run the model, 1 where it would not, with the reasons in the output.
int PrintFacts(const WorkerConfig& config, std::ostream& out);

}  // namespace continuo::worker
