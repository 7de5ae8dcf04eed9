// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/keyed_call.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>
#include <string_view>

#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

// The digest of the message, whatever order its maps came in.
std::string DigestOfMessage(const v1::GenerateRequest& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    CONTINUO_CHECK(request.SerializeToCodedStream(&coded));
  }
  const std::string_view parts[] = {bytes};
  return DigestOf(parts);
}

}  // namespace

absl::Status TakeIdentity(const GenerateService& service, ClientCall* call,
                          v1::GenerateRequest* request) {
  const std::string key = call->metadata(kIdempotencyKey);
  if (key.empty() || request->continuation().received().has_accepted()) return absl::OkStatus();
  // A clock ends such an answer, each time elsewhere.
  if (request->stopping().has_time_limit()) {
    return protocol::FieldError("stopping.time_limit", "cannot be set with an idempotency key");
  }
  ASSIGN_OR_RETURN(call->identity, service.Identify(*call, key));
  call->identity->body = DigestOfMessage(*request);
  if (request->request_id().empty()) request->set_request_id(call->identity->request_id);
  if (!request->sampling().has_seed()) request->mutable_sampling()->set_seed(call->identity->seed);
  return absl::OkStatus();
}

}  // namespace continuo::gateway
