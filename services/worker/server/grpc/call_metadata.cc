// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/call_metadata.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"
#include "services/protocol/validate_request.h"

namespace continuo::server {
namespace {

std::string Value(const grpc::CallbackServerContext& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  if (it == context.client_metadata().end()) return "";
  return std::string(it->second.data(), it->second.size());
}

// Unix seconds, within the range of a Timestamp from 1970 on.
absl::StatusOr<absl::Time> ParseTime(const std::string& text) {
  constexpr int64_t kMostSeconds = 253402300799;  // 9999-12-31T23:59:59Z
  int64_t seconds;
  if (!absl::SimpleAtoi(text, &seconds) || seconds < 0 || seconds > kMostSeconds) {
    return protocol::FieldError("x-continuo-time", "is no time in Unix seconds");
  }
  return absl::FromUnixSeconds(seconds);
}

}  // namespace

absl::Status CheckInferencePeer(const grpc::CallbackServerContext& context,
                                const PeerPolicy& peers) {
  if (peers.open_inference || !peers.check->is_strict()) return absl::OkStatus();
  return peers.check->Require(context);
}

absl::Status CheckLoadPeer(const grpc::CallbackServerContext& context, const PeerPolicy& peers) {
  return peers.check->is_strict() ? peers.check->Require(context) : absl::OkStatus();
}

bool MayReadLoad(const grpc::CallbackServerContext& context, const PeerPolicy& peers) {
  return !peers.check->is_strict() || peers.check->Check(context).ok();
}

std::string TraceparentOf(const grpc::CallbackServerContext& context) {
  return Value(context, "traceparent");
}

absl::StatusOr<CallInfo> ReadCallInfo(const grpc::CallbackServerContext& context,
                                      const PeerPolicy& peers) {
  RETURN_IF_ERROR(CheckInferencePeer(context, peers));
  CallInfo call;
  if (peers.check->Check(context).ok()) {
    if (std::string tenant = Value(context, "x-tenant-id"); !tenant.empty()) {
      RETURN_IF_ERROR(protocol::ValidateId("x-tenant-id", tenant));
      call.tenant = std::move(tenant);
    }
    call.is_migration = Value(context, "x-continuo-move") == "1";
    call.call_id = Value(context, "x-continuo-call");
    if (!call.call_id.empty())
      RETURN_IF_ERROR(protocol::ValidateId("x-continuo-call", call.call_id));
    if (const std::string text = Value(context, "x-continuo-time"); !text.empty()) {
      ASSIGN_OR_RETURN(call.reference_time, ParseTime(text));
    }
    call.body = Value(context, "x-continuo-body");
    if (!call.body.empty()) RETURN_IF_ERROR(protocol::ValidateId("x-continuo-body", call.body));
  }
  call.request_id = Value(context, "x-request-id");
  if (!call.request_id.empty())
    RETURN_IF_ERROR(protocol::ValidateId("x-request-id", call.request_id));
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    call.deadline = absl::FromChrono(deadline);
  }
  return call;
}

}  // namespace continuo::server
