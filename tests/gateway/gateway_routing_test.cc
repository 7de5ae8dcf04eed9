// SPDX-License-Identifier: Apache-2.0
// Tests which worker a whole gateway picks.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/gateway/discovery/dns_server.h"
#include "tests/gateway/gateway_fixture.h"

namespace continuo::gateway {
namespace {

using GatewayRoutingTest = GatewayTest;

TEST_F(GatewayRoutingTest, TheFullerWorkerReceivesFewerRequests) {
  AddWorkers(2);
  workers_[0]->SetReport([](v1::WatchLoadResponse& report) { report.set_used_kv_blocks(900); });
  workers_[1]->SetReport([](v1::WatchLoadResponse& report) { report.set_used_kv_blocks(100); });
  StartGateway();
  WaitForWorkers(2);
  for (int i = 0; i < 200; ++i) Generate(Request("x", 1));
  // The full worker is picked only if both samples hit it: 50 of 200 expected, sigma 6.
  EXPECT_LT(workers_[0]->num_calls(), 80);
  EXPECT_GT(workers_[0]->num_calls(), 20);
}

TEST_F(GatewayRoutingTest, ACanaryGetsItsShareAndTakesOverWhereTheOthersAreGone) {
  AddWorkers(2);
  GatewayConfig config;
  config.workers = absl::StrCat(workers_[0]->address(), "@9;", workers_[1]->address(), "@1");
  StartGateway(config);
  WaitForWorkers(2);
  for (int i = 0; i < 300; ++i) Generate(Request("x", 1));
  // The expectation is 30, sigma 5.
  EXPECT_GT(workers_[1]->num_calls(), 8);
  EXPECT_LT(workers_[1]->num_calls(), 60);
  workers_[0]->Kill();
  ExpectUndisturbed(Generate(Request()), Request());
}

TEST_F(GatewayRoutingTest, PromptsWithOneBeginningAndSessionsMeetOneWorker) {
  AddWorkers(4);
  GatewayConfig config;
  config.routing_policy = "affinity";
  StartGateway(config);
  WaitForWorkers(4);
  const std::string prefix(5000, 'x');
  for (int i = 0; i < 20; ++i) Generate(Request(absl::StrCat(prefix, i), 1));
  std::vector<size_t> calls;
  for (const auto& worker : workers_) calls.push_back(worker->num_calls());
  EXPECT_EQ(*std::ranges::max_element(calls), 20);
  for (int i = 0; i < 20; ++i) {
    Generate(Request(absl::StrCat(i, prefix), 1),
             [](grpc::ClientContext& context) { context.AddMetadata("x-session-id", "s"); });
  }
  size_t session = 0;
  for (size_t i = 0; i < 4; ++i) session = std::max(session, workers_[i]->num_calls() - calls[i]);
  EXPECT_EQ(session, 20);
}

TEST_F(GatewayRoutingTest, AWorkerThatLeftDnsDrainsAndAnotherIsFound) {
  const v1::GenerateRequest request = LongRequest("open");
  // The workers have one port on two loopback addresses, as pods do.
  auto first = std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "first"});
  auto second = std::make_unique<FakeWorker>(FakeGeneration::Worker{.name = "second"},
                                             first->port(), "127.0.0.2");
  DnsServer dns({"127.0.0.1"});
  GatewayConfig config;
  config.workers = absl::StrCat("dns://", dns.address(), "/workers.test:", first->port());
  config.resolver = {.min_interval = absl::Milliseconds(10),
                     .max_interval = absl::Milliseconds(20)};
  StartGateway(config);
  WaitForWorkers(1);

  absl::Notification held, moved_on;
  first->SetScript([&](const FakeWorker::Call&, int response) -> std::optional<absl::Status> {
    if (response == 3 && !held.HasBeenNotified()) {
      held.Notify();
      moved_on.WaitForNotification();
    }
    return std::nullopt;
  });
  Answer open;
  std::thread stream([&] { open = Generate(request); });
  held.WaitForNotification();

  dns.Set({"127.0.0.2"});
  // Only the listed worker takes new work, while the other one is alive.
  while (second->num_calls() < 5) ExpectUndisturbed(Generate(Request("new")), Request("new"));
  const size_t before = first->num_calls();
  for (int i = 0; i < 20; ++i) Generate(Request("new", 1));
  EXPECT_EQ(first->num_calls(), before);
  moved_on.Notify();
  stream.join();
  ExpectUndisturbed(open, request);
  EXPECT_EQ(open.responses.back().summary().migrations(), 0);
}

TEST_F(GatewayRoutingTest, ACallOfAWorkerThatFallsSilentGoesToAnother) {
  AddWorkers(2);
  StartGateway();
  WaitForWorkers(2);
  std::atomic<bool> first = true;
  for (const auto& worker : workers_) {
    worker->SetTokenizeScript([this, &first, worker = worker.get()] {
      if (!first.exchange(false)) return;
      worker->SetSilent(true);
      release_.WaitForNotification();
    });
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::TokenizeRequest request;
  request.set_text("ab");
  v1::TokenizeResponse response;
  const grpc::Status status = stub_->Tokenize(&context, request, &response);
  release_.Notify();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.token_ids_size(), 2);
}

}  // namespace
}  // namespace continuo::gateway
