// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include "services/worker/server/lifetime/load_board.h"

namespace continuo::server {

// Returns the reactor of a call of WatchLoad: the board's reports, as deltas where the watcher
// takes them. `board` outlives it.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatchLoad(const grpc::ByteBuffer& request,
                                                           LoadBoard* board);

}  // namespace continuo::server
