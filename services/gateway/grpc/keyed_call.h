// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/generate_service.h"

namespace continuo::gateway {

// Gives a call of gRPC that has an idempotency key its identity, and the request the id and the
// seed that follow from it, where it has none. A continuation of something received brings its own
// along. The error is one of Identify, or names a field that cannot be set with a key.
absl::Status TakeIdentity(const GenerateService& service, ClientCall* call,
                          v1::GenerateRequest* request);

}  // namespace continuo::gateway
