// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/relay/client_outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RecordingClient : public RelayClient {
 public:
  void Write(const v1::GenerateResponse& response) override {
    written.push_back(response.sequence());
  }
  void Finish(const absl::Status&, const RelayReport&) override { ++num_ends; }
  void WriteLast(const v1::GenerateResponse& response, const absl::Status& status,
                 const RelayReport& report) override {
    written_last.push_back(response.sequence());
    Finish(status, report);
  }
  std::vector<uint64_t> written, written_last;
  int num_ends = 0;
};

v1::GenerateResponse Response(uint64_t sequence, size_t text_bytes = 0) {
  v1::GenerateResponse response;
  response.set_sequence(sequence);
  response.add_deltas()->set_text(std::string(text_bytes, 'x'));
  return response;
}

TEST(ClientOutboxTest, WritesOneResponseAtATimeInOrder) {
  RecordingClient client;
  ClientOutbox outbox({}, &client);
  EXPECT_TRUE(outbox.can_end());
  outbox.WriteNext();
  for (uint64_t i = 1; i <= 3; ++i) outbox.Push(Response(i));
  outbox.WriteNext();
  outbox.WriteNext();  // the first one is still being written
  EXPECT_THAT(client.written, ElementsAre(1));
  outbox.OnWritten();
  outbox.WriteNext();
  outbox.OnWritten();
  outbox.WriteNext();
  EXPECT_THAT(client.written, ElementsAre(1, 2, 3));
  EXPECT_FALSE(outbox.can_end());
  outbox.OnWritten();
  EXPECT_TRUE(outbox.can_end());
}

TEST(ClientOutboxTest, HasNoRoomWhileOneOfItsBoundsIsReached) {
  RecordingClient client;
  ClientOutbox few({.max_bytes = 1 << 20, .max_responses = 2}, &client);
  few.Push(Response(1));
  EXPECT_TRUE(few.has_room());
  few.Push(Response(2));
  EXPECT_FALSE(few.has_room());
  few.WriteNext();  // what is being written does not wait any more
  EXPECT_TRUE(few.has_room());

  ClientOutbox small({.max_bytes = 1000, .max_responses = 100}, &client);
  small.Push(Response(1, 900));
  EXPECT_TRUE(small.has_room());
  small.Push(Response(2, 900));
  EXPECT_FALSE(small.has_room());
  small.WriteNext();
  EXPECT_TRUE(small.has_room());
}

TEST(ClientOutboxTest, WhatWasNotWrittenCanBeDropped) {
  RecordingClient client;
  ClientOutbox outbox({.max_responses = 2}, &client);
  for (uint64_t i = 1; i <= 3; ++i) outbox.Push(Response(i));
  outbox.WriteNext();
  outbox.Clear();
  EXPECT_TRUE(outbox.has_room());
  EXPECT_FALSE(outbox.can_end());  // the first one is still being written
  outbox.OnWritten();
  outbox.WriteNext();
  EXPECT_TRUE(outbox.can_end());
  EXPECT_THAT(client.written, ElementsAre(1));
}

TEST(ClientOutboxTest, TheLastResponseGoesWithTheEnd) {
  RecordingClient client;
  ClientOutbox outbox({}, &client);
  for (uint64_t i = 1; i <= 3; ++i) outbox.Push(Response(i));
  EXPECT_EQ(outbox.num_waiting(), 3);
  EXPECT_FALSE(outbox.can_end());  // two of them come before it
  outbox.WriteNext();
  outbox.OnWritten();
  outbox.WriteNext();
  EXPECT_FALSE(outbox.can_end());  // the second one is still being written
  outbox.OnWritten();
  EXPECT_TRUE(outbox.can_end());
  outbox.WriteEnd(absl::OkStatus(), RelayReport());
  EXPECT_THAT(client.written, ElementsAre(1, 2));
  EXPECT_THAT(client.written_last, ElementsAre(3));
  EXPECT_EQ(client.num_ends, 1);
}

TEST(ClientOutboxTest, AnEndWithoutAResponseGoesAlone) {
  RecordingClient client;
  ClientOutbox outbox({}, &client);
  outbox.Push(Response(1));
  outbox.WriteNext();
  outbox.OnWritten();
  EXPECT_TRUE(outbox.can_end());
  outbox.WriteEnd(absl::OkStatus(), RelayReport());
  EXPECT_THAT(client.written_last, IsEmpty());
  EXPECT_EQ(client.num_ends, 1);
}

}  // namespace
}  // namespace continuo::gateway
