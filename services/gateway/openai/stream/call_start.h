// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/identity/idempotency.h"
#include "services/gateway/openai/stream/cursor_signer.h"

namespace continuo::gateway::openai {

// A call's start holds what is known of it before its generations begin.
struct CallStart {
  // Its request_id is always set. The rest is for calls that may come again: those with an
  // idempotency key, and streams.
  CallIdentity identity;
  std::optional<std::string> key;  // an idempotency key
  // Streams alone have the following members.
  std::unique_ptr<CursorSigner> signer;
  bool has_ids = true;  // each event has a cursor
  bool is_resumed = false;
  Cursor begin;
};

// Completes the start of a stream at the time `now`. `body` is the digest of the request, and
// `last_event_id` the header of that name: empty for a stream from its begin. The errors are those
// of CursorSigner::Read, and ABORTED if the stream cannot go on.
absl::Status StartStream(const FleetSecret& secret, std::string_view tenant, std::string_view body,
                         std::string_view last_event_id, absl::Time now, CallStart* start);

// How many tokens of the answers to each prompt a client has had that goes on behind the cursor.
std::vector<int64_t> TokensHad(const Cursor& cursor, size_t num_prompts, size_t num_sequences);

}  // namespace continuo::gateway::openai
