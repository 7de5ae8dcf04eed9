// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/stream/position.h"

namespace continuo::gateway::openai {

// The id of an event is a cursor: it says which generation the event is of, and how far the stream
// was after it.
struct Cursor {
  // A unit counts one choice, with the prompt's part where there is one choice alone; else a
  // prompt's part.
  struct Unit {
    Amount amount;
    uint32_t hash = 0;
    bool operator==(const Unit&) const = default;
  };

  std::string request_id;
  uint64_t seed = 0;
  absl::Time reference_time;
  std::string fingerprint;
  bool is_exact = true;     // another run gives the same
  uint64_t num_events = 0;  // of the stream so far
  std::vector<Unit> units;
  // Behind the units come `num_skipped` events of `unit`, which bring some of `slice` but are not
  // all that it makes. At the end they are events behind the last response.
  uint32_t unit = 0;
  Amount slice;
  uint32_t num_skipped = 0;
  bool at_end = false;
  bool is_last = false;  // nothing follows

  bool operator==(const Cursor&) const = default;
};

// Signs the cursors of one request, and reads them: those that any gateway of the fleet made for
// this tenant and this request. Not thread-safe.
class CursorSigner {
 public:
  // `body` is the digest of the request.
  CursorSigner(const FleetSecret& secret, std::string_view tenant, std::string_view body);
  ~CursorSigner();

  const std::string& tenant() const { return tenant_; }

  // At most some hundred bytes for one choice, of letters, digits, - and _.
  std::string Sign(const Cursor& cursor);
  // INVALID_ARGUMENT if the text is none that a gateway made for this tenant; ABORTED if it is of
  // another request. Both have reasons.
  absl::StatusOr<Cursor> Read(std::string_view text) const;

 private:
  class Mac;

  const std::string tenant_;
  const std::vector<FleetSecret::Mac> keys_;  // the first one signs
  const uint32_t body_;                       // the begin of the digest
  std::unique_ptr<Mac> mac_;
};

}  // namespace continuo::gateway::openai
