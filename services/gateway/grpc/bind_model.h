// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/gateway/requests/key_limiter.h"

namespace continuo::gateway {

// Checks that the key is for the request's model. A key for one model says which one is meant
// where the request does not.
template <typename Request>
absl::Status BindModel(const KeyGrant* key, KeyLimiter* limiter, Request* request) {
  if (key != nullptr && key->models.size() == 1 && request->model().empty()) {
    request->set_model(key->models.front());
  }
  return limiter->CheckModel(key, request->model());
}

}  // namespace continuo::gateway
