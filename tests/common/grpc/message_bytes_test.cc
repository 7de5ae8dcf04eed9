// SPDX-License-Identifier: Apache-2.0
#include "services/common/grpc/message_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "continuo/v1/inference.pb.h"

namespace continuo::common {
namespace {

grpc::ByteBuffer BytesOf(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

TEST(MessageBytesTest, AMessageIsTheSameAfterBothWays) {
  v1::TokenizeRequest request;
  request.set_text(std::string(100'000, 'x'));
  grpc::ByteBuffer bytes = BytesOf("of the message before");
  SerializeMessage(request, &bytes);
  int64_t memory = 0;
  const absl::StatusOr<v1::TokenizeRequest> parsed =
      ParseMessage<v1::TokenizeRequest>(bytes, &memory);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->text(), request.text());
  EXPECT_GT(memory, 100'000);
  const absl::StatusOr<int64_t> counted = MemoryOf(bytes, *v1::TokenizeRequest::descriptor());
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(*counted, memory);
}

TEST(MessageBytesTest, BytesThatAreNoMessageAreAnError) {
  v1::TokenizeRequest request;
  EXPECT_EQ(ParseMessage(BytesOf("\x0f"), &request).code(), absl::StatusCode::kInvalidArgument);
}

TEST(MessageBytesTest, AFieldThatIsNotUtf8IsNamed) {
  v1::GenerateRequest request;
  request.set_request_id("id");
  std::string bytes = request.SerializeAsString();
  bytes.back() = '\xff';
  const absl::Status status = ParseMessage(BytesOf(bytes), &request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("request_id"));
}

}  // namespace
}  // namespace continuo::common
