// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace continuo::gateway {

// What the end of a worker's stream means for the client's.
enum class WorkerEnd {
  kComplete,    // the summary was received: done, whatever the status
  kDrained,     // the worker is well and sends us elsewhere
  kLost,        // transport or process gone
  kSuspect,     // a reset stream or a defect in the worker, one cannot tell
  kOverloaded,  // the worker refuses new work
  kFinal,       // the worker's answer about this request, passed on
};

// A status that our servers set on purpose to send a stream elsewhere has an ErrorInfo; what gRPC
// makes itself when a connection breaks or a stream is reset has none. CANCELLED is one that we
// did not cause: calls that we cancel are no longer listened to.
//
//   any, after the summary           complete
//   OK without a summary             lost
//   UNAVAILABLE with a reason        drained
//   UNAVAILABLE without, CANCELLED   lost
//   INTERNAL, UNKNOWN without one    suspect: RST_STREAM arrives as INTERNAL
//   RESOURCE_EXHAUSTED               overloaded, but SLOW_READER final
//   everything else                  final
WorkerEnd ClassifyWorkerEnd(const absl::Status& status, bool has_summary);

}  // namespace continuo::gateway
