// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/case_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace continuo {
namespace {

using ::testing::ElementsAre;

class CpuSource : public CaseSource {
 public:
  explicit CpuSource(std::vector<Case> cases)
      : device_(kernels::MakeDevice({}).value()), cases_(std::move(cases)) {}
  kernels::Device& device() override { return *device_; }
  std::string device_name() const override { return "cpu"; }
  std::span<const Case> cases() const override { return cases_; }
  void Wait() override {}
  void KeepArguments() override {}
  void FreeArguments() override {}

 private:
  const std::unique_ptr<kernels::Device> device_;
  const std::vector<Case> cases_;
};

Calls Nothing() {
  return {[] {}};
}
Calls Fails() {
  EndOnFailure(absl::InternalError("wrong"));
  return {};
}

TEST(CaseRunnerTest, CasesThatFailAreInTheFileAsWell) {
  const std::string json = ::testing::TempDir() + "/case_runner_test.json";
  const auto open = [] {
    return std::make_unique<CpuSource>(
        std::vector<Case>{{.group = "a", .name = "fails", .make = Fails},
                          {.group = "b", .name = "ends well", .make = Nothing},
                          {.group = "b", .name = "crashes", .make = [] {
                             std::abort();
                             return Nothing();
                           }}});
  };
  EXPECT_EQ(RunCases(open, {.json = json}), 1);
  std::ifstream file(json);
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("op")) continue;
    rows.push_back(row["group"].get<std::string>() + ": " + row["op"].get<std::string>() +
                   (row.contains("failed") ? " failed" : ""));
  }
  EXPECT_THAT(rows, ElementsAre("a: fails failed", "b: ends well", "b: crashes failed"));
}

}  // namespace
}  // namespace continuo
