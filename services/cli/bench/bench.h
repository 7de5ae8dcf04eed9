// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/cli/bench/bench_flags.h"
#include "services/cli/client/console.h"
#include "services/cli/client/interrupt.h"

namespace continuo::cli {

// Runs `continuo bench`: generates load, in a closed or an open loop, and reports. Returns the exit
// code: 0, 1 where a request failed (rejections do not count) or none succeeded, 2 for bad usage,
// 130 where it was interrupted, with a report of the measurement until then.
int RunBench(const BenchFlags& flags, Interrupt& interrupt, const Console& console);

}  // namespace continuo::cli
