// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/watch_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Event(const char* type, const char* address, const char* version) {
  return absl::StrCat(R"({"type":")", type, R"(","object":{"metadata":{"name":")", address,
                      R"(","resourceVersion":")", version,
                      R"("},"addressType":"IPv4","endpoints":[{"addresses":[")", address,
                      "\"]}]}}\n");
}

TEST(WatchBodyTest, EventsAreTheSameHoweverTheBodyIsDivided) {
  const std::string body = absl::StrCat(Event("ADDED", "10.0.0.1", "5"),
                                        Event("ADDED", "10.0.0.2", "6"), "{\"type\":\"ADD");
  for (size_t size = 1; size <= body.size(); ++size) {
    EndpointSlices slices("1");
    WatchBody watch(&slices);
    for (size_t at = 0; at < body.size(); at += size) {
      ASSERT_TRUE(watch.Take(std::string_view(body).substr(at, size)).ok()) << size;
    }
    EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.1:1", "10.0.0.2:1"));
    EXPECT_EQ(watch.version(), "6");
  }
}

TEST(WatchBodyTest, WhatCameBeforeABadEventCounts) {
  EndpointSlices slices("1");
  WatchBody watch(&slices);
  const absl::Status taken = watch.Take(absl::StrCat(
      Event("ADDED", "10.0.0.1", "5"), R"({"type":"ERROR","object":{"code":410,"message":"old"}})",
      "\n", Event("ADDED", "10.0.0.2", "6")));
  EXPECT_EQ(taken.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(taken.message(), "old");
  EXPECT_THAT(slices.Addresses(), ElementsAre("10.0.0.1:1"));
  EXPECT_EQ(watch.version(), "5");
}

TEST(WatchBodyTest, AnEventIsBoundedWithItsEndAndWithoutIt) {
  const std::string event = Event("ADDED", "10.0.0.1", "5");
  for (const bool has_end : {false, true}) {
    EndpointSlices slices("1");
    WatchBody fits(&slices, event.size() - 1), does_not(&slices, event.size() - 2);
    const std::string sent = event.substr(0, event.size() - (has_end ? 0 : 1));
    EXPECT_TRUE(fits.Take(sent).ok());
    const absl::Status taken = does_not.Take(sent);
    EXPECT_EQ(taken.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(taken.message()), HasSubstr("too large"));
    EXPECT_EQ(does_not.version(), "");
  }
}

}  // namespace
}  // namespace continuo::gateway
