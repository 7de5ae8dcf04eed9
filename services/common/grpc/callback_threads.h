// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace continuo::common {

// Keeps gRPC's threads for callbacks until the process ends. Otherwise they end with the last
// channel or server that has used callbacks, and gRPC 1.51 aborts now and then where others start
// while they do ("prior > 0" in ref_counted.h). Programs without a server call it before they open
// channels. Thread-safe; the first call does the work.
void KeepCallbackThreads();

}  // namespace continuo::common
