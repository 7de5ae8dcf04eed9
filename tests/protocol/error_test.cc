// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"

namespace continuo::protocol {
namespace {

TEST(ErrorTest, CarriesAReason) {
  const absl::Status status = WithReason(absl::UnavailableError("going away"), kReasonDraining);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "going away");
  EXPECT_EQ(ReasonOf(status), "DRAINING");
}

TEST(ErrorTest, TheLastReasonCounts) {
  absl::Status status = WithReason(absl::AbortedError("x"), kReasonAborted);
  status = WithReason(std::move(status), kReasonPoison);
  EXPECT_EQ(ReasonOf(status), kReasonPoison);
}

TEST(ErrorTest, AReasonOfAnotherDomainIsNone) {
  google::rpc::ErrorInfo info;
  info.set_reason("DRAINING");
  info.set_domain("example.com");
  absl::Status status = absl::UnavailableError("x");
  status.SetPayload("type.googleapis.com/google.rpc.ErrorInfo",
                    absl::Cord(info.SerializeAsString()));
  EXPECT_EQ(ReasonOf(status), "");
}

TEST(ErrorTest, CarriesARetryDelay) {
  const absl::Status status =
      WithRetryInfo(absl::ResourceExhaustedError("full"), absl::Milliseconds(1500));
  EXPECT_EQ(RetryDelayOf(status), absl::Milliseconds(1500));
  EXPECT_EQ(RetryDelayOf(absl::ResourceExhaustedError("full")), std::nullopt);
}

TEST(ErrorTest, ARetryDelayIsNeverNegativeNorInfinite) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryDelayOf(WithRetryInfo(full, -absl::Seconds(1))), absl::ZeroDuration());
  EXPECT_EQ(RetryDelayOf(WithRetryInfo(full, absl::InfiniteDuration())), absl::Hours(24));
}

TEST(ErrorTest, NamesTheField) {
  const absl::Status status = FieldError("sampling.temperature", "is NaN; from 0 to 100");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "sampling.temperature: is NaN; from 0 to 100");
  EXPECT_EQ(FieldOf(status), "sampling.temperature");
}

TEST(ErrorTest, DetailsDoNotDisturbEachOther) {
  const absl::Status status = WithRetryInfo(
      WithReason(FieldError("prompt", "too long"), kReasonContextTooLong), absl::Seconds(2));
  EXPECT_EQ(FieldOf(status), "prompt");
  EXPECT_EQ(ReasonOf(status), kReasonContextTooLong);
  EXPECT_EQ(RetryDelayOf(status), absl::Seconds(2));
}

TEST(ErrorTest, AnOkStatusStaysOk) {
  EXPECT_EQ(WithReason(absl::OkStatus(), kReasonDraining), absl::OkStatus());
  EXPECT_EQ(ReasonOf(absl::OkStatus()), "");
  EXPECT_EQ(FieldOf(absl::OkStatus()), "");
}

TEST(ErrorTest, AReasonTravelsInTheMessageWhereDetailsDoNot) {
  const absl::Status status = WithReason(absl::UnavailableError("it: drains"), kReasonDraining);
  const std::string message = MessageWithReason(status);
  EXPECT_EQ(message, "continuo.v1/DRAINING: it: drains");
  EXPECT_EQ(ReasonFromMessage(absl::UnavailableError(message)), status);

  const absl::Status without = absl::UnavailableError("Socket closed: why");
  EXPECT_EQ(MessageWithReason(without), without.message());
  EXPECT_EQ(ReasonFromMessage(without), without);
}

TEST(ErrorTest, BytesThatAreNoMessageAreIgnored) {
  absl::Status status = absl::InternalError("x");
  for (const char* name : {"ErrorInfo", "RetryInfo", "BadRequest"}) {
    status.SetPayload("type.googleapis.com/google.rpc." + std::string(name),
                      absl::Cord("\xff\xff\xff"));
  }
  EXPECT_EQ(ReasonOf(status), "");
  EXPECT_EQ(RetryDelayOf(status), std::nullopt);
  EXPECT_EQ(FieldOf(status), "");
}

TEST(ErrorTest, BytesThatAreNoTextDoNotReachTheDetails) {
  const absl::Status status = FieldError("a\xff", "is \"\xc3\"");
  EXPECT_EQ(FieldOf(status), "a\ufffd");
  EXPECT_EQ(status.message(), "a\ufffd: is \"\ufffd\"");
}

TEST(LoggedMessageTest, ErrorsOfConstraintsAreToldWithoutWhatTheyQuote) {
  EXPECT_EQ(LoggedMessage(FieldError("constraint.regex", "secret")),
            "constraint.regex: is refused");
  EXPECT_EQ(LoggedMessage(FieldError("sampling.top_p", "is 3")), "sampling.top_p: is 3");
  EXPECT_EQ(LoggedMessage(absl::InternalError("x")), "x");
}

}  // namespace
}  // namespace continuo::protocol
