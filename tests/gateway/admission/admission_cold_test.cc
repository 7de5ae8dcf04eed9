// SPDX-License-Identifier: Apache-2.0
// Tests of the limits of requests that wait for a model without a worker.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "services/gateway/admission/admission.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

AdmissionRequest Cold(const std::string& tenant, int64_t tokens = 1) {
  return {.bytes = 1, .tokens = tokens, .tenant = tenant, .model = "cold", .is_cold = true};
}
AdmissionRequest Warm(const std::string& tenant, int64_t tokens = 1) {
  return {.bytes = 1, .tokens = tokens, .tenant = tenant, .model = "warm"};
}

TEST(AdmissionColdTest, ATenantHasALimitOfColdRequestsAndOthersHaveTheirs) {
  Admission admission({.tenant = {.max_cold_requests = 2}});
  std::vector<Admission::Ticket> tickets;
  for (int i = 0; i < 2; ++i) tickets.push_back(*admission.Admit(Cold("a")));
  const absl::Status rejected = admission.Admit(Cold("a")).status();
  EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonRateLimited);
  EXPECT_EQ(rejected.message(),
            "the tenant has its limit of 2 requests that wait for a model without a worker");
  EXPECT_GT(*protocol::RetryDelayOf(rejected), absl::Seconds(1));
  EXPECT_TRUE(admission.Admit(Cold("b")).ok());
  EXPECT_TRUE(admission.Admit(Warm("a")).ok());
  tickets.pop_back();
  EXPECT_TRUE(admission.Admit(Cold("a")).ok());
}

TEST(AdmissionColdTest, AContinuationMayHaveTwiceAsMany) {
  Admission admission({.tenant = {.max_cold_requests = 1}});
  const Admission::Ticket first = *admission.Admit(Cold("a"));
  AdmissionRequest request = Cold("a");
  request.is_continuation = true;
  const absl::StatusOr<Admission::Ticket> second = admission.Admit(request);
  EXPECT_TRUE(second.ok());
  EXPECT_FALSE(admission.Admit(request).ok());
}

TEST(AdmissionColdTest, ARequestIsNotColdOnceAWorkerHasIt) {
  Admission admission({.tenant = {.max_cold_requests = 1}});
  Admission::Ticket sent = *admission.Admit(Cold("a"));
  sent.SetSent(true);
  EXPECT_EQ(admission.counts().cold_requests, 0);
  Admission::Ticket collected = *admission.Admit(Cold("a"));
  collected.MarkRead();
  EXPECT_EQ(admission.counts().cold_requests, 0);
  // One whose worker is lost has been begun, and is not cold again.
  sent.SetSent(false);
  const Admission::Ticket waiting = *admission.Admit(Cold("a"));
  EXPECT_EQ(admission.counts().cold_requests, 1);
  EXPECT_EQ(admission.counts().cold_tokens, 1);
  EXPECT_EQ(admission.counts().cold_bytes, 1);
}

TEST(AdmissionColdTest, WithoutALimitOfATenantHalfOfEachLimitOfAllIsLeftToOtherModels) {
  const AdmissionLimits no_limit_of_a_tenant = {.tenant = {.max_cold_requests = 0}};
  struct Row {
    AdmissionLimits limits;
    std::string name;
  };
  std::vector<Row> rows(3, {no_limit_of_a_tenant, ""});
  rows[0].limits.max_open_requests = 100;
  rows[0].name = "open requests";
  rows[1].limits.max_open_bytes = 100;
  rows[1].name = "open bytes";
  rows[2].limits.max_queued_tokens = 100;
  rows[2].name = "queued tokens";
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Admission admission(row.limits);
    std::vector<Admission::Ticket> tickets;
    absl::Status rejected;
    for (int i = 0; i < 100 && rejected.ok(); ++i) {
      absl::StatusOr<Admission::Ticket> ticket = admission.Admit(Cold("a"));
      rejected = ticket.status();
      if (ticket.ok()) tickets.push_back(*std::move(ticket));
    }
    EXPECT_EQ(tickets.size(), 50);
    EXPECT_EQ(protocol::ReasonOf(rejected), protocol::kReasonOverloaded);
    EXPECT_NE(rejected.message().find("models without a worker"), std::string::npos) << rejected;
    EXPECT_TRUE(admission.Admit(Warm("a")).ok());
    EXPECT_TRUE(admission.Admit(Warm("b")).ok());
  }
}

TEST(AdmissionColdTest, ALargePromptIsTakenWhereNothingElseIsCold) {
  Admission admission({.max_queued_tokens = 100});
  const absl::StatusOr<Admission::Ticket> large = admission.Admit(Cold("a", 80));
  EXPECT_TRUE(large.ok());
  EXPECT_FALSE(admission.Admit(Cold("b")).ok());
}

}  // namespace
}  // namespace continuo::gateway
