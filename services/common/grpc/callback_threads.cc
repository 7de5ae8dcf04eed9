// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/callback_threads.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <memory>

#include "absl/synchronization/notification.h"

namespace continuo::common {

namespace {

// The channel that keeps them. Nothing reads it; as an atomic it is not optimised away, so that it
// is no leak.
std::atomic<std::shared_ptr<grpc::Channel>*> kept_channel = nullptr;

}  // namespace

void KeepCallbackThreads() {
  // Without credentials a channel connects nowhere, and its calls fail at once.
  [[maybe_unused]] static const bool is_kept = [] {
    auto* const kept = new std::shared_ptr<grpc::Channel>(grpc::CreateChannel("", nullptr));
    grpc::GenericStub stub(*kept);
    grpc::ClientContext context;
    const grpc::Slice empty;
    grpc::ByteBuffer request(&empty, 1), response;
    absl::Notification done;
    stub.UnaryCall(&context, "/none", {}, &request, &response,
                   [&](const grpc::Status&) { done.Notify(); });
    done.WaitForNotification();
    kept_channel.store(kept);
    return true;
  }();
}

}  // namespace continuo::common
