// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"

namespace continuo::gateway {

// The meaning of the end of a worker's stream for the client's stream.
enum class WorkerEnd {
  kComplete,    // the summary was received: done, whatever the status
  kDrained,     // the worker is well and sends its streams elsewhere
  kLost,        // the connection or the process is gone
  kSilent,      // no status: the router reports that the worker is lost, silent or hung
  kFault,       // a reset stream or a defect in the worker; the status does not tell which
  kOverloaded,  // the worker rejects new work
  kFinal,       // the worker's answer about this request, passed on to the client
};

// Classifies the status with which a worker's stream ended. A status that our servers set on
// purpose to send a stream elsewhere has an ErrorInfo; one that gRPC makes itself when a connection
// breaks or a stream is reset has none. CANCELLED was not caused here: the relay does not listen to
// calls that it has cancelled.
//
//   any, after the summary           complete
//   OK without a summary             lost
//   UNAVAILABLE with a reason        drained
//   UNAVAILABLE without, CANCELLED   lost
//   INTERNAL, UNKNOWN without one    fault: RST_STREAM arrives as INTERNAL
//   RESOURCE_EXHAUSTED               overloaded, but SLOW_READER final
//   PEER_TOKEN, PEER_NAME            drained: it is the gateway that is refused, not the client
//   everything else                  final; the relays take NOT_FOUND for drained where another
//                                    worker has the model
WorkerEnd ClassifyWorkerEnd(const absl::Status& status, bool has_summary);

}  // namespace continuo::gateway
