// SPDX-License-Identifier: Apache-2.0
// Any text as Last-Event-ID is refused with a reason. Any bytes behind the signature are no cursor,
// or one whose text every gateway of the fleet reads back, and which with one character changed, or
// as another tenant's or of another request, is refused.
//
// The first byte: 0 text of a client's, else bytes of a cursor. The next two: which character of
// the text is changed, and to what.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/gateway/openai/stream/cursor_signer.h"
#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kControlBytes = 3;

void CheckRefused(const absl::StatusOr<Cursor>& read) {
  const std::string reason = protocol::ReasonOf(read.status());
  CONTINUO_CHECK(read.status().code() == absl::StatusCode::kInvalidArgument
                     ? reason == protocol::kReasonInvalidCursor
                     : read.status().code() == absl::StatusCode::kAborted &&
                           reason == protocol::kReasonOtherRequest);
  CONTINUO_CHECK(read.status().message().size() < 200);
}

class Fleet {
 public:
  void Read(std::string_view text) const { CheckRefused(signer_.Read(text)); }

  void ReadBytes(std::string_view bytes, uint8_t place, uint8_t value) {
    const std::optional<Cursor> cursor = ReadCursorBytes(bytes);
    if (!cursor.has_value()) return;
    // The bytes need not be the shortest ones.
    const std::string written = CursorBytes(*cursor);
    CONTINUO_CHECK(written.size() <= bytes.size() && ReadCursorBytes(written) == cursor);
    std::string text;
    signer_.SetGeneration(*cursor);
    signer_.Sign(*cursor, &text);
    // A gateway with another first secret is told the seed that followed from the id.
    Cursor expected = *cursor;
    if (!expected.seed.has_value()) expected.seed = signer_.SeedOf(expected.request_id);
    const auto read = other_gateway_.Read(text), own = signer_.Read(text);
    CONTINUO_CHECK(read.ok() && *read == expected);
    CONTINUO_CHECK(own.ok() && *own == *cursor);
    for (const CursorSigner* const other : {&other_tenant_, &other_request_, &other_fleet_}) {
      CheckRefused(other->Read(text));
    }
    char& changed = text[place % text.size()];
    if (changed == static_cast<char>(value)) return;
    changed = static_cast<char>(value);
    CheckRefused(signer_.Read(text));
  }

 private:
  static FleetSecret SecretOf(std::vector<uint8_t> bytes) {
    return FleetSecret([bytes] {
      std::vector<FleetSecret::Key> keys(bytes.size());
      for (size_t i = 0; i < bytes.size(); ++i) keys[i].fill(bytes[i]);
      return keys;
    });
  }

  const std::string body_ = std::string(64, 'a'), other_body_ = std::string(64, 'b');
  CursorSigner signer_{SecretOf({1}), "t", body_};
  // It has another first secret already.
  const CursorSigner other_gateway_{SecretOf({2, 1}), "t", body_};
  const CursorSigner other_tenant_{SecretOf({1}), "u", body_};
  const CursorSigner other_request_{SecretOf({1}), "t", other_body_};
  const CursorSigner other_fleet_{SecretOf({3}), "t", body_};
};

}  // namespace
}  // namespace continuo::gateway::openai

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using continuo::gateway::openai::kControlBytes;
  if (size < kControlBytes) return 0;
  static continuo::gateway::openai::Fleet fleet;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + kControlBytes,
                               size - kControlBytes);
  if (data[0] == 0) {
    fleet.Read(bytes);
  } else {
    fleet.ReadBytes(bytes, data[1], data[2]);
  }
  return 0;
}
