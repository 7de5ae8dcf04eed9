// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/grpc_status.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "google/rpc/status.pb.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"

namespace continuo::common {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxDetailsBytes = 3072;

// Cuts the text to at most `limit` bytes, at the beginning of a character.
std::string Cut(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text;
}

}  // namespace

std::string MessageOnWire(const absl::Status& status) {
  return Cut(ToValidUtf8({status.message().data(), status.message().size()}), kMaxMessageBytes);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = MessageOnWire(status);

  google::rpc::Status rpc;
  rpc.set_code(code);
  rpc.set_message(message);
  status.ForEachPayload([&rpc](auto type_url, const absl::Cord& payload) {
    google::protobuf::Any& any = *rpc.add_details();
    any.set_type_url(std::string(type_url));
    any.set_value(std::string(payload));
  });
  std::string details;
  if (rpc.details_size() > 0) details = rpc.SerializeAsString();
  if (details.size() > kMaxDetailsBytes) details.clear();
  return grpc::Status(code, message, details);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const int code = static_cast<int>(status.error_code());
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  absl::Status result(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      status.error_message());
  if (status.error_details().empty()) return protocol::ReasonFromMessage(std::move(result));
  google::rpc::Status rpc;
  if (rpc.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : rpc.details()) {
      result.SetPayload(any.type_url(), absl::Cord(any.value()));
    }
  }
  return result;
}

}  // namespace continuo::common
