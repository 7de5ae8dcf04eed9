// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/json/error_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json ErrorOf(const absl::Status& status) {
  return Json::parse(ErrorJson(Endpoint::kChat, status))["error"];
}

TEST(ErrorJsonTest, EveryCodeHasItsStatus) {
  EXPECT_EQ(HttpStatusOf(absl::InvalidArgumentError("")), 400);
  EXPECT_EQ(HttpStatusOf(absl::FailedPreconditionError("")), 400);
  EXPECT_EQ(HttpStatusOf(absl::UnauthenticatedError("")), 401);
  EXPECT_EQ(HttpStatusOf(absl::PermissionDeniedError("")), 403);
  EXPECT_EQ(HttpStatusOf(absl::NotFoundError("")), 404);
  EXPECT_EQ(HttpStatusOf(absl::AlreadyExistsError("")), 409);
  EXPECT_EQ(HttpStatusOf(absl::AbortedError("")), 409);
  EXPECT_EQ(HttpStatusOf(absl::ResourceExhaustedError("")), 429);
  EXPECT_EQ(HttpStatusOf(absl::InternalError("")), 500);
  EXPECT_EQ(HttpStatusOf(absl::UnknownError("")), 500);
  EXPECT_EQ(HttpStatusOf(absl::UnimplementedError("")), 501);
  EXPECT_EQ(HttpStatusOf(absl::UnavailableError("")), 503);
  EXPECT_EQ(HttpStatusOf(absl::DeadlineExceededError("")), 504);
}

TEST(ErrorJsonTest, AFieldIsNamedAsTheClientKnowsIt) {
  const Json error = ErrorOf(protocol::FieldError("stopping.strings[2]", "has 300 bytes"));
  EXPECT_EQ(error, Json::parse(R"({"message":"stop: has 300 bytes","type":"invalid_request_error",
                                   "param":"stop","code":null})"));
}

TEST(ErrorJsonTest, ReasonsAreCodes) {
  EXPECT_EQ(ErrorOf(protocol::WithReason(protocol::FieldError("text", "x"),
                                         protocol::kReasonContextTooLong))["code"],
            "context_length_exceeded");
  EXPECT_EQ(ErrorOf(protocol::WithReason(absl::ResourceExhaustedError("x"),
                                         protocol::kReasonRateLimited))["code"],
            "rate_limit_exceeded");
  EXPECT_EQ(
      ErrorOf(protocol::WithReason(absl::UnavailableError("x"), protocol::kReasonNoWorker))["code"],
      "no_worker");
  EXPECT_EQ(ErrorOf(absl::NotFoundError("x"))["code"], "model_not_found");
  EXPECT_EQ(ErrorOf(absl::NotFoundError("x"))["param"], "model");
  EXPECT_EQ(ErrorOf(absl::UnauthenticatedError("x"))["code"], "invalid_api_key");
}

TEST(ErrorJsonTest, AnExceededContextIsToldInOpenAisWords) {
  const Json error = ErrorOf(protocol::WithReason(
      protocol::FieldError("conversation", "This model's maximum context length is 8 tokens."),
      protocol::kReasonContextTooLong));
  EXPECT_EQ(error, Json::parse(R"({"message":"This model's maximum context length is 8 tokens.",
                                   "type":"invalid_request_error","param":"messages",
                                   "code":"context_length_exceeded"})"));
}

TEST(ErrorJsonTest, TheClientsNameOfALimitIsUsedInTheTextToo) {
  ParamNames names(Endpoint::kChat);
  names.max_completion_tokens = true;
  const Json error = Json::parse(ErrorJson(
      names,
      protocol::FieldError("stopping.min_tokens", "5 is above max_tokens, which is 3")))["error"];
  EXPECT_EQ(error["message"], "min_tokens: 5 is above max_completion_tokens, which is 3");
}

TEST(ErrorJsonTest, RetryAfterIsWholeSecondsAtLeastOne) {
  const absl::Status full = absl::ResourceExhaustedError("full");
  EXPECT_EQ(RetryAfterOf(full), 1);
  EXPECT_EQ(RetryAfterOf(protocol::WithRetryInfo(full, absl::Milliseconds(10))), 1);
  EXPECT_EQ(RetryAfterOf(protocol::WithRetryInfo(full, absl::Milliseconds(2100))), 3);
  EXPECT_EQ(RetryAfterOf(protocol::WithRetryInfo(full, absl::Hours(100))), 3600);
  EXPECT_EQ(RetryAfterOf(absl::UnavailableError("")), 1);
  EXPECT_EQ(RetryAfterOf(absl::InvalidArgumentError("")), std::nullopt);
}

TEST(ErrorJsonTest, OurOwnFailuresTellNothingOfTheInside) {
  const Json error = ErrorOf(absl::InternalError("read /etc/secret from 10.0.0.1:50051"));
  EXPECT_THAT(error["message"], Not(HasSubstr("secret")));
  EXPECT_THAT(error["message"], Not(HasSubstr("10.0.0.1")));
  EXPECT_EQ(error["type"], "server_error");
  // A message with a reason is ours and is passed on.
  const absl::Status poison =
      protocol::WithReason(absl::InternalError("ended 3 workers"), protocol::kReasonPoison);
  EXPECT_EQ(ErrorOf(poison)["message"], "ended 3 workers");
}

TEST(ErrorJsonTest, AMessageThatIsNoUtf8IsStillJson) {
  EXPECT_THAT(ErrorOf(absl::InvalidArgumentError("a\xff")).dump(), HasSubstr("a"));
}

}  // namespace
}  // namespace continuo::gateway::openai
