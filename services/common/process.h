// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::common {

// Prepares the process of a server. Called first in main, before any thread is started:
// * gRPC's messages become log lines.
// * The heap is limited to few arenas. glibc makes eight per core, and the remains of short-lived
//   threads are scattered over all of them, so that resident memory grows for days. Up to some MiB
//   of an arena's free end are kept, so that buffers of messages cost no page faults.
// * Abseil's deadlock detection is turned off. Debian builds Abseil with it, as if for debugging.
void PrepareProcess();

}  // namespace continuo::common
