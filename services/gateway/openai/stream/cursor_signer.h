// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/stream/cmac.h"
#include "services/gateway/openai/stream/cursor.h"

namespace continuo::gateway::openai {

// Signs the cursors of one request, and reads them: those that any gateway of the fleet made for
// this tenant and this request. Not thread-safe.
class CursorSigner {
 public:
  // `body` is the digest of the request.
  CursorSigner(const FleetSecret& secret, std::string_view tenant, std::string_view body);
  const std::string& tenant() const { return tenant_; }

  // At most some hundred bytes for one choice, of letters, digits, - and _.
  // Good until the next call.
  const std::string& Sign(const Cursor& cursor);
  // INVALID_ARGUMENT if the text is none that a gateway made for this tenant; ABORTED if it is of
  // another request. Both have reasons.
  absl::StatusOr<Cursor> Read(std::string_view text) const;

 private:
  const std::string tenant_;
  const std::vector<FleetSecret::Mac> keys_;  // the first one signs
  const std::string begin_;                   // of the bytes of each cursor
  Cmac mac_;
  Cursor named_;       // whose names_ are
  std::string names_;  // what all its cursors begin with
  std::string bytes_, text_;
};

}  // namespace continuo::gateway::openai
