// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/wire_check.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <string>

#include "continuo/v1/inference.pb.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::protocol {
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

// However the bytes are divided into pieces.
WireCounts CountOnWire(const std::string& bytes, const google::protobuf::Descriptor& type =
                                                     *v1::GenerateRequest::descriptor()) {
  const auto count = [&](int piece) {
    google::protobuf::io::ArrayInputStream input(bytes.data(), static_cast<int>(bytes.size()),
                                                 piece);
    return protocol::CountOnWire(&input, type);
  };
  const WireCounts whole = count(-1), in_pieces = count(7);
  EXPECT_EQ(whole.values, in_pieces.values);
  EXPECT_EQ(whole.numbers, in_pieces.numbers);
  return whole;
}
int64_t CountValues(const std::string& bytes) { return CountOnWire(bytes).values; }
int64_t CountNumbers(const std::string& bytes) { return CountOnWire(bytes).numbers; }

TEST(CountOnWireTest, NumbersOfListsCountHoweverTheyAreWritten) {
  v1::GenerateRequest request;
  request.set_priority(3);
  request.mutable_sampling()->set_seed(7);
  EXPECT_EQ(CountNumbers(request.SerializeAsString()), 0);
  for (uint32_t i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(i * i * i * 4);
  EXPECT_EQ(CountNumbers(request.SerializeAsString()), 1000);
  v1::Delta* const delta = request.mutable_continuation()->mutable_received()->add_deltas();
  for (uint32_t i = 0; i < 100; ++i) delta->add_token_ids(i);
  EXPECT_EQ(CountNumbers(request.SerializeAsString()), 1100);
  // Each number takes four bytes.
  v1::Embedding floats;
  for (int i = 0; i < 9; ++i) floats.add_values(-1);
  EXPECT_EQ(CountOnWire(floats.SerializeAsString(), *floats.GetDescriptor()).numbers, 9);
  // One by one: fields of stopping's ids.
  v1::Stopping stopping;
  stopping.add_token_ids(1);
  const std::string packed = stopping.SerializeAsString();
  const std::string one = {static_cast<char>(packed[0] & ~7), 1};
  const auto tag = static_cast<char>(v1::GenerateRequest::kStoppingFieldNumber << 3 | 2);
  const std::string bytes = {tag, 6, one[0], 1, one[0], 1, one[0], 1};
  v1::GenerateRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  ASSERT_EQ(parsed.stopping().token_ids_size(), 3);
  EXPECT_EQ(CountNumbers(bytes), 3);
}

TEST(CountOnWireTest, ARequestOfManySmallNumbersIsChargedWhatItTakes) {
  v1::GenerateRequest request;
  v1::Delta* const delta = request.mutable_continuation()->mutable_received()->add_deltas();
  for (int i = 0; i < 1'000'000; ++i) delta->add_token_ids(1);
  const std::string bytes = request.SerializeAsString();
  v1::GenerateRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_GE(MemoryOf(static_cast<int64_t>(bytes.size()), CountOnWire(bytes)),
            2 * static_cast<int64_t>(parsed.SpaceUsedLong()));
}

TEST(CountValuesTest, MessagesAndTextsCountAndNumbersDoNot) {
  v1::GenerateRequest request;
  EXPECT_EQ(CountValues(request.SerializeAsString()), 0);
  request.set_priority(3);
  for (int i = 0; i < 1000; ++i) request.mutable_token_ids()->add_ids(i);
  EXPECT_EQ(CountValues(request.SerializeAsString()), 1);
  request.clear_prompt();
  for (int i = 0; i < 5; ++i) request.mutable_conversation()->add_messages()->set_content("");
  EXPECT_EQ(CountValues(request.SerializeAsString()), 6);
  for (auto& message : *request.mutable_conversation()->mutable_messages()) {
    message.set_role("user");
    message.set_content("hello");
  }
  EXPECT_EQ(CountValues(request.SerializeAsString()), 16);
  (*request.mutable_sampling()->mutable_logit_bias())[7] = 1;
  EXPECT_EQ(CountValues(request.SerializeAsString()), 18);
}

TEST(CountValuesTest, WhatIsNotKnownCountsHoweverItIsWrapped) {
  EXPECT_EQ(CountValues(std::string("\xa0\x06\x01\xa0\x06\x01", 6)), 2);  // field 100, twice
  // The same in a group of field 101: its begin and its end count as well.
  EXPECT_EQ(CountValues(std::string("\xab\x06\xa0\x06\x01\xac\x06", 7)), 3);
  // A number where a conversation is expected.
  EXPECT_EQ(CountValues(std::string("\x28\x01", 2)), 1);
}

TEST(CountValuesTest, NothingIsMissedAfterAGroup) {
  v1::GenerateRequest request;
  for (int i = 0; i < 5; ++i) request.mutable_conversation()->add_messages();
  const std::string messages = request.SerializeAsString();
  // In a group nothing is known: what has the number of a conversation is no message, so that it
  // may be malformed.
  const int tag = v1::GenerateRequest::kConversationFieldNumber << 3 | 2;
  ASSERT_LT(tag, 128);
  const std::string malformed = {static_cast<char>(tag), 2, '\xa0', '\x06'};
  const std::string bytes = "\xab\x06" + malformed + "\xac\x06" + messages;
  v1::GenerateRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.conversation().messages_size(), 5);
  EXPECT_EQ(CountValues(bytes), 3 + 6);  // the field in it, its begin and its end
  // Groups may hold groups.
  EXPECT_EQ(CountValues("\xab\x06\xab\x06\xac\x06" + malformed + "\xac\x06" + messages), 5 + 6);
}

TEST(CountValuesTest, ItEndsAtTheLimit) {
  v1::GenerateRequest request;
  for (int64_t i = 0; i < kMaxValues; ++i) request.mutable_stopping()->add_strings();
  std::string bytes = request.SerializeAsString();
  EXPECT_EQ(CountValues(bytes), kMaxValues + 1);
  EXPECT_EQ(CountValues(bytes + bytes), kMaxValues + 1);
  request.mutable_stopping()->mutable_strings()->RemoveLast();
  bytes = request.SerializeAsString();
  EXPECT_EQ(CountValues(bytes), kMaxValues);
}

TEST(CountValuesTest, AnyBytesAreTaken) {
  v1::GenerateRequest request;
  request.mutable_conversation()->add_messages()->set_content("hello");
  request.mutable_continuation()->mutable_received()->add_deltas()->add_token_ids(3);
  const std::string good = request.SerializeAsString();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(value);
      const int64_t count = CountValues(bytes);
      EXPECT_GE(count, 0);
      EXPECT_LE(count, static_cast<int64_t>(bytes.size()));
      v1::GenerateRequest parsed;
      if (!parsed.ParseFromString(bytes)) continue;
      // Once more as it was understood: nothing was missed.
      EXPECT_GE(count, CountValues(parsed.SerializeAsString()));
      EXPECT_GE(CountNumbers(bytes), CountNumbers(parsed.SerializeAsString()));
    }
  }
  std::string deep;
  for (int i = 0; i < 500; ++i) deep = std::string("\x62\x7F", 2) + deep;
  EXPECT_GT(CountValues(deep), 0);
}

}  // namespace
}  // namespace continuo::protocol
