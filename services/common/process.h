// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::common {

// What a server does first in main, before any thread: gRPC's messages become log lines; the heap
// keeps to few arenas (glibc makes eight for each core, and what threads that come and go leave
// behind is scattered over all of them, so that resident memory grows for days); Abseil no longer
// looks for cycles at every lock, as Debian's does as if it were a debug build.
void PrepareProcess();

}  // namespace continuo::common
