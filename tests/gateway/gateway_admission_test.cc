// SPDX-License-Identifier: Apache-2.0
// Admission as clients of a whole gateway see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "services/common/error.h"
#include "services/gateway/gateway.h"
#include "tests/gateway/gateway_fixture.h"

namespace continuo::gateway {
namespace {

class GatewayAdmissionTest : public GatewayTest {
 protected:
  static void As(grpc::ClientContext& context, const std::string& tenant) {
    context.AddMetadata("x-tenant-id", tenant);
  }
  absl::Status Tokenize(const std::string& tenant) {
    grpc::ClientContext context;
    As(context, tenant);
    v1::TokenizeRequest request;
    request.set_text("ab");
    v1::TokenizeResponse response;
    return FromGrpcStatus(stub_->Tokenize(&context, request, &response));
  }
};

TEST_F(GatewayAdmissionTest, OneTenantCannotTakeAllCallsOfTokenize) {
  AddWorkers(1);
  GatewayConfig config;
  config.auth.trust_tenant_header = true;
  config.forwarded.max_open_requests = 5;
  StartGateway(config);
  WaitForWorkers(1);
  absl::Mutex mutex;
  int entered = 0;
  workers_[0]->SetTokenizeScript([&] {
    {
      absl::MutexLock lock(&mutex);
      ++entered;
    }
    release_.WaitForNotification();
  });
  // Four times what is still free: four of five.
  std::vector<std::thread> calls;
  for (int i = 0; i < 4; ++i) {
    calls.emplace_back([&] { EXPECT_EQ(Tokenize("flood"), absl::OkStatus()); });
  }
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(
                                           +[](int* n) { return *n == 4; }, &entered),
                                       absl::Minutes(1)));
  }
  const absl::Status refused = Tokenize("flood");
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(ReasonOf(refused), kReasonOverloaded);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  calls.emplace_back([&] { EXPECT_EQ(Tokenize("light"), absl::OkStatus()); });
  release_.Notify();
  for (std::thread& call : calls) call.join();
}

}  // namespace
}  // namespace continuo::gateway
