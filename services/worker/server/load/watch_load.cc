// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load/watch_load.h"

#include <algorithm>
#include <optional>

#include "services/base/status_macros.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/error.h"
#include "services/protocol/load_delta.h"
#include "services/worker/server/load/load_stream.h"

namespace continuo::server {
namespace {

absl::StatusOr<WatchPace> ReadPace(const v1::WatchLoadRequest& request) {
  ASSIGN_OR_RETURN(const absl::Duration max,
                   ReadInterval("max_interval", request.has_max_interval(), request.max_interval(),
                                absl::Seconds(1)));
  ASSIGN_OR_RETURN(const absl::Duration min,
                   ReadInterval("min_interval", request.has_min_interval(), request.min_interval(),
                                std::min(absl::Milliseconds(100), max)));
  if (min > max) return protocol::FieldError("min_interval", "is above max_interval");
  return WatchPace(min, max);
}

// Writes reports whole, or as deltas of the last one that was whole.
class DeltaEncoder {
 public:
  void operator()(const v1::WatchLoadResponse& response, grpc::ByteBuffer* bytes) {
    if (full_.has_value() && protocol::IsDeltaOf(response, *full_)) {
      common::SerializeMessage(protocol::MakeLoadDelta(response), bytes);
      return;
    }
    full_ = response;
    common::SerializeMessage(response, bytes);
  }

 private:
  std::optional<v1::WatchLoadResponse> full_;
};

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatchLoad(const grpc::ByteBuffer& request,
                                                           LoadBoard* board) {
  // A gateway of a later release may ask for more; it gets the fields that this worker knows.
  const absl::StatusOr<v1::WatchLoadRequest> message =
      common::ParseMessage<v1::WatchLoadRequest>(request);
  if (!message.ok()) return LoadStream::Start(message.status(), nullptr, board);
  LoadStream::Encoder encode = DeltaEncoder();
  if (!message->accepts_deltas()) {
    encode = [](const v1::WatchLoadResponse& response, grpc::ByteBuffer* bytes) {
      common::SerializeMessage(response, bytes);
    };
  }
  return LoadStream::Start(ReadPace(*message), std::move(encode), board);
}

}  // namespace continuo::server
