// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/client_call.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace continuo::gateway {

ClientCall CallOf(const grpc::CallbackServerContext& context, const grpc::ByteBuffer& bytes) {
  ClientCall call;
  call.metadata = [&context](const char* key) {
    const auto at = context.client_metadata().find(key);
    if (at == context.client_metadata().end()) return std::string();
    return std::string(at->second.data(), at->second.size());
  };
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    call.deadline = absl::FromChrono(deadline);
  }
  call.num_bytes = static_cast<int64_t>(bytes.Length());
  return call;
}

}  // namespace continuo::gateway
