// SPDX-License-Identifier: Apache-2.0
#include "services/common/wire_check.h"

#include <gtest/gtest.h>

#include "continuo/v1/inference.pb.h"
#include "services/common/error.h"

namespace continuo {
namespace {

TEST(WireCheckTest, NamesTheTextThatIsNotUtf8) {
  v1::GenerateRequest request;
  request.set_request_id("ok");
  request.mutable_conversation()->add_messages()->set_content("fine");
  request.mutable_conversation()->add_messages()->set_content("XX");
  std::string bytes = request.SerializeAsString();
  bytes.replace(bytes.find("XX"), 2, "\xC3(");
  EXPECT_FALSE(request.ParseFromString(bytes));
  EXPECT_EQ(FieldOf(ExplainParseFailure(bytes, *request.GetDescriptor())),
            "conversation.messages.content");
}

TEST(WireCheckTest, AnyBytesAreTaken) {
  const auto& type = *v1::GenerateRequest::descriptor();
  v1::GenerateRequest request;
  request.set_text("hello");
  request.mutable_sampling()->set_seed(5);
  request.mutable_stopping()->add_strings("stop");
  const std::string good = request.SerializeAsString();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      EXPECT_EQ(ExplainParseFailure(bytes, type).code(), absl::StatusCode::kInvalidArgument);
    }
    EXPECT_FALSE(ExplainParseFailure(good.substr(0, i), type).ok());
  }
  // Messages within messages, deeper than any parser follows.
  std::string deep;
  for (int i = 0; i < 500; ++i) deep = std::string("\x62\x7F", 2) + deep;
  EXPECT_FALSE(ExplainParseFailure(deep, type).ok());
}

}  // namespace
}  // namespace continuo
