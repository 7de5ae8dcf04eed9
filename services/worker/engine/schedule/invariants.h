// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/residency.h"

namespace continuo::engine {

// Walks the whole state of a scheduler. Returns Internal with the first broken invariant. For
// tests.
absl::Status CheckInvariants(const RequestBook& book, const Residency& residency,
                             bool step_in_flight);

}  // namespace continuo::engine
