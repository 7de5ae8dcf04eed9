// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/call_start.h"

#include <algorithm>

#include "services/base/status_macros.h"
#include "services/gateway/openai/stream/position.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {

absl::Status StartStream(const FleetSecret& secret, std::string_view tenant, std::string_view body,
                         std::string_view last_event_id, absl::Time now, CallStart* start) {
  start->signer = std::make_unique<CursorSigner>(secret, tenant, body);
  CallIdentity& identity = start->identity;
  Cursor& begin = start->begin;
  if (last_event_id.empty()) {
    if (!start->key.has_value()) {
      identity.seed = start->signer->SeedOf(identity.request_id);
      identity.reference_time = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
    }
    begin.request_id = identity.request_id;
    if (start->key.has_value()) begin.seed = identity.seed;
    begin.reference_time = identity.reference_time;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(begin, start->signer->Read(last_event_id));
  // The stream may have begun while the fleet's secret was another one.
  if (start->key.has_value() && !IsIdOfKey(secret, tenant, *start->key, begin.request_id)) {
    return protocol::WithReason(
        absl::AbortedError("Last-Event-ID is of a request with another Idempotency-Key"),
        protocol::kReasonOtherRequest);
  }
  if (!begin.is_exact) {
    return protocol::WithReason(
        absl::AbortedError(
            "the stream cannot go on: its workers do not give the same answer twice"),
        protocol::kReasonModelChanged);
  }
  start->is_resumed = true;
  identity.request_id = begin.request_id;
  identity.seed = begin.seed.value_or(start->signer->SeedOf(begin.request_id));
  identity.reference_time = begin.reference_time;
  identity.preferred_fingerprint = begin.fingerprint;
  identity.takes_over = true;
  return absl::OkStatus();
}

std::vector<int64_t> TokensHad(const Cursor& cursor, size_t num_prompts, size_t num_sequences) {
  std::vector<int64_t> tokens(num_prompts);
  for (size_t i = 0; i < std::min(cursor.units.size(), num_prompts * num_sequences); ++i) {
    tokens[i / num_sequences] += static_cast<int64_t>(cursor.units[i].amount.of[Amount::kIds]);
  }
  return tokens;
}

}  // namespace continuo::gateway::openai
