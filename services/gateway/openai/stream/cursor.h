// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
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
  std::optional<uint64_t> seed;  // nullopt: the signer's seed of the id
  absl::Time reference_time;
  std::string fingerprint;  // as ShortFingerprint has it
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

// The begin of a fingerprint, which tells apart those that a fleet has, one after the other: 32
// bits of one as workers make it, and any other text as it is.
std::string_view ShortFingerprint(std::string_view fingerprint);

// The cursor as bytes: mostly some forty of them for one choice. What names the generation comes
// first, and is the same in all cursors of a stream; the place is behind it. Times count in
// seconds.
std::string CursorBytes(const Cursor& cursor);
std::string NameBytes(const Cursor& cursor);
void AppendPlaceBytes(const Cursor& cursor, std::string* bytes);

// Any bytes may be passed; nullopt where they are no cursor.
std::optional<Cursor> ReadCursorBytes(std::string_view bytes);

}  // namespace continuo::gateway::openai
