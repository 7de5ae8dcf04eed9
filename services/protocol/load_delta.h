// SPDX-License-Identifier: Apache-2.0
#pragma once

// Load reports without the fields that seldom change (WatchLoadResponse.is_delta).

#include "continuo/v1/worker.pb.h"

namespace continuo::protocol {

// True if `report` may follow `full` as a delta: it differs in no field that a delta leaves out.
bool IsDeltaOf(const v1::WatchLoadResponse& report, const v1::WatchLoadResponse& full);
// Leaves out the fields that a delta does not have.
v1::WatchLoadResponse MakeLoadDelta(const v1::WatchLoadResponse& report);
// Makes `*full`, the last response that is no delta, the report that `delta` stands for.
void ApplyLoadDelta(const v1::WatchLoadResponse& delta, v1::WatchLoadResponse* full);

}  // namespace continuo::protocol
