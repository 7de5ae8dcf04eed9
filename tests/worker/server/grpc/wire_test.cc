// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/grpc/wire.h"

#include <gtest/gtest.h>

#include "continuo/v1/inference.pb.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/limits.h"
#include "services/protocol/wire_check.h"

namespace continuo::server {
namespace {

grpc::ByteBuffer BytesOf(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  common::SerializeMessage(message, &bytes);
  return bytes;
}

TEST(ParseRequestTest, ARequestOfCountlessPartsIsRefusedUnread) {
  v1::GenerateRequest request;
  for (int64_t i = 0; i < protocol::kMaxValues; ++i) request.mutable_conversation()->add_messages();
  v1::GenerateRequest parsed;
  EXPECT_EQ(ParseRequest(BytesOf(request), &parsed).message(),
            "the request has more than 1048576 messages and texts");
  EXPECT_FALSE(parsed.has_conversation());
  request.mutable_conversation()->mutable_messages()->RemoveLast();
  EXPECT_EQ(ParseRequest(BytesOf(request), &parsed), absl::OkStatus());
  EXPECT_EQ(parsed.conversation().messages_size(), protocol::kMaxValues - 1);
}

}  // namespace
}  // namespace continuo::server
