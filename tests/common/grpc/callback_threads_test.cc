// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/callback_threads.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace continuo::common {
namespace {

// A call that owns its channel.
struct Call {
  std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel("", nullptr);
  grpc::GenericStub stub{channel};
  grpc::ClientContext context;
  const grpc::Slice empty;
  grpc::ByteBuffer request{&empty, 1}, response;
};

// Each time the last channel ends in a callback, so on one of the threads that would end with it.
TEST(CallbackThreadsTest, TheLastChannelEndsInACallback) {
  KeepCallbackThreads();
  for (int i = 0; i < 3000; ++i) {
    absl::Notification done;
    auto* const call = new Call;
    call->stub.UnaryCall(&call->context, "/none", {}, &call->request, &call->response,
                         [&, call](const grpc::Status& status) {
                           EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
                           delete call;
                           done.Notify();
                         });
    done.WaitForNotification();
  }
}

}  // namespace
}  // namespace continuo::common
