// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "continuo/v1/worker.pb.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace continuo::server {

// The metadata key of a report that ends a call (gRFC A51).
inline constexpr char kOrcaTrailer[] = "endpoint-load-metrics-bin";

// A worker's load for balancers that know ORCA: gRPC's weighted round robin (gRFC A58) and Envoy's,
// which give an endpoint the weight rps_fractional / application_utilization.
//
// utilization["kv_cache"] is the share of the KV blocks that running requests use, or of the slots
// of states where that is larger. application_utilization is the larger one of it and of the share
// of max_running_requests that runs, and the share that waits comes on top; a worker that does not
// serve tells the queue of a whole batch. It is at least 0.01, since balancers ignore reports of 0.
//
// rps_fractional is always 1: weights are 1 / utilization then. By the rate at which requests end,
// a worker whose few answers are long would get fewer and fewer requests, and the fewer it had the
// less it would get.
xds::data::orca::v3::OrcaLoadReport MakeOrcaReport(const v1::WatchLoadResponse& load);

}  // namespace continuo::server
