// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/callback_threads.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>

#include "absl/synchronization/notification.h"

namespace continuo::common {

void KeepCallbackThreads() {
  // Without credentials a channel connects nowhere, and its calls fail at once.
  [[maybe_unused]] static const auto* const channel = [] {
    auto* const kept = new std::shared_ptr<grpc::Channel>(grpc::CreateChannel("", nullptr));
    grpc::GenericStub stub(*kept);
    grpc::ClientContext context;
    const grpc::Slice empty;
    grpc::ByteBuffer request(&empty, 1), response;
    absl::Notification done;
    stub.UnaryCall(&context, "/none", {}, &request, &response,
                   [&](const grpc::Status&) { done.Notify(); });
    done.WaitForNotification();
    return kept;
  }();
}

}  // namespace continuo::common
