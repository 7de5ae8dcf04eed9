// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/grpc_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/cord.h"
#include "google/rpc/status.pb.h"
#include "services/protocol/error.h"

namespace continuo::common {
namespace {

TEST(GrpcStatusTest, EveryCodeAndItsMessageComeBack) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), code == 0 ? "" : "message");
    const grpc::Status grpc = ToGrpcStatus(status);
    EXPECT_EQ(grpc.error_code(), code);
    EXPECT_EQ(FromGrpcStatus(grpc), status);
  }
}

TEST(GrpcStatusTest, DetailsComeBack) {
  const absl::Status status =
      protocol::WithRetryInfo(protocol::WithReason(protocol::FieldError("model", "no such model"),
                                                   protocol::kReasonRateLimited),
                              absl::Milliseconds(250));
  EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
}

TEST(GrpcStatusTest, DetailsAreAGoogleRpcStatus) {
  const grpc::Status grpc = ToGrpcStatus(protocol::FieldError("model", "is unknown"));
  google::rpc::Status rpc;
  ASSERT_TRUE(rpc.ParseFromString(grpc.error_details()));
  EXPECT_EQ(rpc.code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(rpc.message(), "model: is unknown");
  ASSERT_EQ(rpc.details_size(), 1);
  EXPECT_EQ(rpc.details(0).type_url(), "type.googleapis.com/google.rpc.BadRequest");
}

TEST(GrpcStatusTest, WithoutPayloadsThereAreNoDetails) {
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("x")).error_details(), "");
}

TEST(GrpcStatusTest, ALongMessageIsCutAtACharacter) {
  std::string message(1023, 'a');
  message += "é and more";
  EXPECT_EQ(ToGrpcStatus(absl::InternalError(message)).error_message(), std::string(1023, 'a'));
}

TEST(GrpcStatusTest, DetailsThatDoNotFitIntoTrailersAreLeftOut) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload("type.googleapis.com/google.rpc.DebugInfo", absl::Cord(std::string(8000, 'a')));
  EXPECT_EQ(ToGrpcStatus(status).error_details(), "");
}

TEST(GrpcStatusTest, AMessageThatIsNoTextIsMadeText) {
  const grpc::Status grpc =
      ToGrpcStatus(protocol::WithReason(absl::InternalError("a\xff"), protocol::kReasonPoison));
  EXPECT_EQ(grpc.error_message(), "a\ufffd");
  google::rpc::Status rpc;
  ASSERT_TRUE(rpc.ParseFromString(grpc.error_details()));
  EXPECT_EQ(rpc.message(), "a\ufffd");
}

TEST(GrpcStatusTest, AReasonInTheMessageCountsWhereThereAreNoDetails) {
  const absl::Status status =
      protocol::WithReason(absl::AbortedError("replaced"), protocol::kReasonAborted);
  EXPECT_EQ(FromGrpcStatus({grpc::StatusCode::ABORTED, protocol::MessageWithReason(status)}),
            status);
}

TEST(GrpcStatusTest, UnknownCodesAndDetailsAreTaken) {
  const grpc::Status strange(static_cast<grpc::StatusCode>(20), "x", "\xff\xff");
  EXPECT_EQ(FromGrpcStatus(strange), absl::UnknownError("x"));
}

}  // namespace
}  // namespace continuo::common
