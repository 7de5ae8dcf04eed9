// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/admission.h"

#include <gtest/gtest.h>

#include <utility>

#include "services/common/error.h"

namespace continuo::gateway {
namespace {

constexpr AdmissionLimits kLimits = {
    .max_open_requests = 3, .max_open_bytes = 1000, .max_queued_tokens = 100};

TEST(AdmissionTest, TheRequestBeyondTheLimitIsRefusedWithReasonAndHint) {
  Admission admission(kLimits);
  const auto a = admission.Admit(1, 1), b = admission.Admit(1, 1), c = admission.Admit(1, 1);
  const absl::Status refused = admission.Admit(1, 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(ReasonOf(refused), kReasonOverloaded);
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  EXPECT_NE(refused.message().find("3 open requests"), std::string::npos) << refused;
}

TEST(AdmissionTest, ATicketGivesEverythingBack) {
  Admission admission(kLimits);
  {
    auto ticket = *admission.Admit(900, 90);
    EXPECT_FALSE(admission.Admit(200, 1).ok());
    EXPECT_FALSE(admission.Admit(1, 20).ok());
    const Admission::Ticket moved = std::move(ticket);
    EXPECT_EQ(admission.counts().open_requests, 1);
  }
  const Admission::Counts counts = admission.counts();
  EXPECT_EQ(counts.open_requests, 0);
  EXPECT_EQ(counts.open_bytes, 0);
  EXPECT_EQ(counts.queued_requests, 0);
  EXPECT_EQ(counts.queued_tokens, 0);
}

TEST(AdmissionTest, APromptIsQueuedUntilItsAnswerBegins) {
  Admission admission(kLimits);
  auto ticket = *admission.Admit(1, 90);
  EXPECT_FALSE(admission.Admit(1, 20).ok());
  ticket.MarkStarted();
  ticket.MarkStarted();
  EXPECT_EQ(admission.counts().queued_tokens, 0);
  EXPECT_EQ(admission.counts().open_requests, 1);
  EXPECT_TRUE(admission.Admit(1, 20).ok());
}

TEST(AdmissionTest, APromptLargerThanTheQueueIsTakenAlone) {
  Admission admission(kLimits);
  EXPECT_TRUE(admission.Admit(1, 500).ok());
  const auto small = *admission.Admit(1, 1);
  EXPECT_FALSE(admission.Admit(1, 500).ok());
}

}  // namespace
}  // namespace continuo::gateway
