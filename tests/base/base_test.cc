// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "services/base/check.h"
#include "services/base/clock.h"
#include "services/base/status_macros.h"

namespace continuo {
namespace {

using ::testing::Truly;

TEST(CheckTest, AFalseConditionEndsTheProcessAndSaysWhere) {
  EXPECT_DEATH(CONTINUO_CHECK(1 + 1 == 3), "1 \\+ 1 == 3.*base_test.cc");
}

TEST(CheckTest, TheLineIsJsonWhateverTheConditionHas) {
  const auto says = [](const std::string& output, const std::string& condition) {
    const size_t begin = output.find('{');
    if (begin == std::string::npos) return false;
    const auto line = nlohmann::json::parse(output.substr(begin, output.find('\n') - begin),
                                            /*callback=*/nullptr, /*allow_exceptions=*/false);
    return line.is_object() && line["message"] == "check failed: " + condition;
  };
  EXPECT_DEATH(CONTINUO_CHECK(std::string("a\"b\\") == "\t"), Truly([&](const std::string& output) {
                 return says(output, R"(std::string("a\"b\\") == "\t")");
               }));
  EXPECT_DEATH(CheckFailed("file", 1, "a tab\t"),
               Truly([&](const std::string& output) { return says(output, "a tab\t"); }));
  EXPECT_DEATH(
      CheckFailed("file", 1, std::string(5000, '"').c_str()),
      Truly([&](const std::string& output) { return says(output, std::string(509, '"')); }));
}

TEST(CheckTest, ATrueConditionIsEvaluatedOnce) {
  int times = 0;
  CONTINUO_CHECK(++times == 1);
  EXPECT_EQ(times, 1);
}

absl::Status Fail(absl::Status status, bool* reached) {
  RETURN_IF_ERROR(status);
  *reached = true;
  return absl::OkStatus();
}

TEST(ReturnIfErrorTest, ReturnsAnErrorAndPassesOk) {
  bool reached = false;
  EXPECT_EQ(Fail(absl::NotFoundError("x"), &reached), absl::NotFoundError("x"));
  EXPECT_FALSE(reached);
  EXPECT_TRUE(Fail(absl::OkStatus(), &reached).ok());
  EXPECT_TRUE(reached);
}

absl::StatusOr<int> Length(absl::StatusOr<std::unique_ptr<std::string>> text) {
  std::unique_ptr<std::string> value;
  ASSIGN_OR_RETURN(value, std::move(text));
  ASSIGN_OR_RETURN(const int length, absl::StatusOr<int>(static_cast<int>(value->size())));
  return length;
}

TEST(AssignOrReturnTest, TakesTheValueOrReturnsTheError) {
  EXPECT_EQ(*Length(std::make_unique<std::string>("abc")), 3);
  EXPECT_EQ(Length(absl::InternalError("x")).status(), absl::InternalError("x"));
}

TEST(SystemClockTest, TimeDoesNotStandStillForYears) {
  const absl::Time now = SystemClock().Now();
  EXPECT_GT(now, absl::FromCivil(absl::CivilYear(2020), absl::UTCTimeZone()));
  EXPECT_LT(now, absl::FromCivil(absl::CivilYear(2200), absl::UTCTimeZone()));
}

}  // namespace
}  // namespace continuo
