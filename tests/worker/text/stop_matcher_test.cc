// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/worker/text/stop_reference.h"

namespace continuo::text {
namespace {

struct Result {
  std::string text;
  int stop;
};

Result Push(StopMatcher& matcher, std::string_view text, bool active = true,
            bool include_stop = false) {
  Result result;
  result.stop = matcher.Push(text, active, include_stop, &result.text);
  return result;
}

TEST(StopMatcherTest, WithoutStopStringsNothingIsHeldBack) {
  StopMatcher matcher({});
  EXPECT_EQ(Push(matcher, "abc").text, "abc");
}

TEST(StopMatcherTest, OnlyWhatCouldBecomeAStopStringIsHeldBack) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(Push(matcher, "xE").text, "x");
  EXPECT_EQ(Push(matcher, "N").text, "");
  EXPECT_EQ(Push(matcher, "EN").text, "EN");
  const Result result = Push(matcher, "Dy");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop, 0);
}

TEST(StopMatcherTest, AStopStringIsPartOfTheTextWhereItIsToBeIncluded) {
  StopMatcher matcher({"END"});
  const Result result = Push(matcher, "xENDy", true, /*include_stop=*/true);
  EXPECT_EQ(result.text, "xEND");
  EXPECT_EQ(result.stop, 0);
}

TEST(StopMatcherTest, TheFirstToBeCompleteWinsThoughAnotherBeganEarlier) {
  StopMatcher matcher({"abcd", "bc"});
  const Result result = Push(matcher, "xabcd");
  EXPECT_EQ(result.text, "xa");
  EXPECT_EQ(result.stop, 1);
}

TEST(StopMatcherTest, OfSeveralThatEndTogetherTheLongestWins) {
  StopMatcher matcher({"c", "bc", "abc", "bc"});
  const Result result = Push(matcher, "xabc");
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(result.stop, 2);
}

TEST(StopMatcherTest, WhileNotActiveAStopStringIsText) {
  StopMatcher matcher({"ab"});
  EXPECT_EQ(Push(matcher, "xab", /*active=*/false).text, "xab");
  EXPECT_EQ(Push(matcher, "ab").stop, 0);
}

TEST(StopMatcherTest, WhatBeganWhileNotActiveMayStillBecomeAStopString) {
  StopMatcher matcher({"ab", "abc", "aa"});
  EXPECT_EQ(Push(matcher, "xab", /*active=*/false).text, "x");
  const Result result = Push(matcher, "c");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.stop, 1);

  StopMatcher overlapping({"aa"});
  EXPECT_EQ(Push(overlapping, "aa", /*active=*/false).text, "a");
  EXPECT_EQ(Push(overlapping, "a").stop, 0);
}

TEST(StopMatcherTest, FlushGivesWhatWasHeldBack) {
  StopMatcher matcher({"END"});
  Push(matcher, "xEN");
  std::string rest;
  matcher.Flush(&rest);
  EXPECT_EQ(rest, "EN");
}

TEST(StopMatcherTest, ACopyGoesOnByItself) {
  StopMatcher matcher({"END"});
  Push(matcher, "EN");
  StopMatcher copy = matcher;
  EXPECT_EQ(Push(copy, "D").stop, 0);
  EXPECT_EQ(Push(matcher, "x").text, "ENx");
}

std::string RandomText(std::mt19937& random, size_t max_size) {
  static const std::string kCharacters[] = {"a", "b", "é", "è"};
  std::string text;
  for (size_t n = 1 + random() % max_size; n > 0; --n) text += kCharacters[random() % 4];
  return text;
}

TEST(StopMatcherTest, RandomTextsGiveWhatTheReferenceGives) {
  std::mt19937 random(1);
  int num_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(RandomText(random, 5));
    const bool include_stop = random() % 2 == 0;
    const size_t num_inactive = random() % 4;
    StopMatcher matcher(stops);
    testing::StopReference reference(stops, include_stop);
    std::string out;
    int stop = -1;
    for (size_t i = 0; i < 12 && stop < 0; ++i) {
      const std::string piece = RandomText(random, 4);
      const bool active = i >= num_inactive;
      const StopMatcher copy = matcher;
      matcher = copy;
      const int expected = reference.Push(piece, active);
      stop = matcher.Push(piece, active, include_stop, &out);
      ASSERT_EQ(stop, expected);
      ASSERT_EQ(out, reference.released()) << ::testing::PrintToString(stops);
    }
    if (stop >= 0) ++num_stopped;
    matcher.Flush(&out);
    ASSERT_EQ(out, reference.text());
  }
  EXPECT_GT(num_stopped, 5000);
}

}  // namespace
}  // namespace continuo::text
