// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "continuo/v1/worker.pb.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/runtime/worker_identity.h"

namespace continuo::server {

v1::ServedAdapter ToProto(const ServedAdapters::Offer& offer);

// The worker's load as it is now, for WatchLoad. `hung` tells that its engine makes no progress.
// `serving` is null while the model is being loaded. Thread-safe.
v1::WatchLoadResponse MakeLoadReport(const WorkerIdentity& identity, v1::WorkerState state,
                                     bool hung, const Serving* serving);

}  // namespace continuo::server
