// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/identity/fleet_secret.h"
#include "services/gateway/openai/stream/cursor.h"
#include "services/gateway/openai/stream/siphash.h"

namespace continuo::gateway::openai {

// Signs the cursors of one request, and reads them: those that any gateway of the fleet made for
// this tenant and this request. Not thread-safe.
class CursorSigner {
 public:
  // `body` is the digest of the request.
  CursorSigner(const FleetSecret& secret, std::string_view tenant, std::string_view body);
  const std::string& tenant() const { return tenant_; }

  // The seed of a generation of this request whose id was drawn. Its cursors need not have it.
  uint64_t SeedOf(std::string_view request_id) const;

  // Sets the generation that the cursors of the next calls are of: what they begin with is the same
  // for all, and computed here once.
  void SetGeneration(const Cursor& cursor);
  // Appends the text of a cursor of that generation: mostly some sixty letters, digits, - and _ for
  // one choice.
  void Sign(const Cursor& cursor, std::string* text);
  // INVALID_ARGUMENT if the text is none that a gateway made for this tenant; ABORTED if it is of
  // another request. Both have reasons. The cursor has its seed where that is not SeedOf its id,
  // since the fleet's secret has changed.
  absl::StatusOr<Cursor> Read(std::string_view text) const;

 private:
  const std::string tenant_;
  const std::vector<FleetSecret::Mac> keys_;  // the first one signs
  const std::string begin_;                   // of all cursors' bytes
  SipHash mac_;
  size_t num_name_ = 0;     // bytes of what names the generation
  size_t num_begin_ = 0;    // of them, whole words, which mac_ has as its begin
  size_t num_encoded_ = 0;  // of them, those whose text is name_text_
  std::string name_text_;
  std::string bytes_;  // the name, and the place of the last cursor
};

}  // namespace continuo::gateway::openai
