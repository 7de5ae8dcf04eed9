// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/workers/health_watch.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/slice.h>

#include <string>
#include <string_view>
#include <utility>

namespace continuo::gateway {
namespace {

// The bytes of HealthCheckResponse{status: NOT_SERVING}: field 1, varint 2. HealthCheckRequest{}
// has no bytes.
constexpr std::string_view kNotServing = "\x08\x02";

}  // namespace

void HealthWatch::Start(std::shared_ptr<HealthWatch> self) {
  self_ = std::move(self);
  const grpc::Slice empty;
  request_ = grpc::ByteBuffer(&empty, 1);
  grpc::GenericStub(channel_).PrepareBidiStreamingCall(&context_, "/grpc.health.v1.Health/Watch",
                                                       grpc::StubOptions(), this);
  StartWriteLast(&request_, grpc::WriteOptions());
  StartRead(&response_);
  StartCall();
}

void HealthWatch::OnReadDone(bool ok) {
  if (!ok) return;
  grpc::Slice bytes;
  if (response_.DumpToSingleSlice(&bytes).ok()) {
    on_health_(std::string_view(reinterpret_cast<const char*>(bytes.begin()), bytes.size()) ==
               kNotServing);
  }
  response_.Clear();
  StartRead(&response_);
}

void HealthWatch::OnDone(const grpc::Status& /*status*/) {
  const std::shared_ptr<HealthWatch> self = std::move(self_);
  on_end_();
}

}  // namespace continuo::gateway
