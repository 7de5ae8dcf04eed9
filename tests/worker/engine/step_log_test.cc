// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/step_log.h"

#include <gmock/gmock.h>

#include <optional>
#include <thread>

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepRecord Step(uint64_t number, size_t num_sequences = 1) {
  StepRecord record;
  record.number = number;
  record.sequences.resize(num_sequences);
  return record;
}

std::vector<uint64_t> Numbers(const StepLog::Watch::Steps& steps) {
  std::vector<uint64_t> numbers;
  for (const auto& record : steps.records) numbers.push_back(record->number);
  return numbers;
}

TEST(StepLogTest, AWatchSeesWhatComesAfterItBegan) {
  StepLog log;
  StepLog::Watch early(&log);
  log.Add(Step(1));
  StepLog::Watch late(&log);
  log.Add(Step(2));
  EXPECT_THAT(Numbers(early.Read()), ElementsAre(1, 2));
  EXPECT_THAT(Numbers(late.Read()), ElementsAre(2));
  EXPECT_EQ(late.Read().num_dropped, 0u);
}

TEST(StepLogTest, WhatWasTakenIsNotReadAgain) {
  StepLog log;
  StepLog::Watch watch(&log);
  for (int i = 1; i <= 3; ++i) log.Add(Step(i));
  watch.Take(watch.Read(), 2);
  EXPECT_THAT(Numbers(watch.Read()), ElementsAre(3));
  watch.Take(watch.Read(), 1);
  EXPECT_THAT(Numbers(watch.Read()), IsEmpty());
}

TEST(StepLogTest, NothingIsKeptWhileNobodyWatches) {
  StepLog log;
  EXPECT_FALSE(log.watched());
  log.Add(Step(1));
  std::optional<StepLog::Watch> first(&log);
  EXPECT_TRUE(log.watched());
  log.Add(Step(2));
  first.reset();
  EXPECT_FALSE(log.watched());
  log.Add(Step(3));
  const StepLog::Watch second(&log);
  log.Add(Step(4));
  EXPECT_THAT(Numbers(second.Read()), ElementsAre(4));
  EXPECT_EQ(second.Read().num_dropped, 0u);
}

TEST(StepLogTest, ASlowReaderLosesTheOldestAndKnowsHowMany) {
  StepLog log;
  StepLog::Watch watch(&log);
  for (size_t i = 1; i <= StepLog::kMaxSteps + 10; ++i) log.Add(Step(i));
  const StepLog::Watch::Steps steps = watch.Read();
  EXPECT_EQ(steps.num_dropped, 10u);
  EXPECT_EQ(steps.records.size(), StepLog::kMaxSteps);
  EXPECT_EQ(steps.records.front()->number, 11u);
  watch.Take(steps, steps.records.size());
  EXPECT_EQ(watch.Read().num_dropped, 0u);
}

TEST(StepLogTest, WideStepsAreBoundedByTheirSequences) {
  StepLog log;
  const StepLog::Watch watch(&log);
  for (int i = 1; i <= 10; ++i) log.Add(Step(i, StepLog::kMaxSequences / 4));
  EXPECT_THAT(Numbers(watch.Read()), ElementsAre(7, 8, 9, 10));
  log.Add(Step(11, 2 * StepLog::kMaxSequences));
  EXPECT_THAT(Numbers(watch.Read()), ElementsAre(11));
  EXPECT_EQ(watch.Read().num_dropped, 10u);
}

TEST(StepLogTest, WatchersComeAndGoWhileStepsAreMade) {
  StepLog log;
  std::thread engine([&] {
    for (int i = 1; i <= 5000; ++i) log.Add(Step(i));
  });
  for (int i = 0; i < 50; ++i) {
    StepLog::Watch watch(&log);
    uint64_t last = 0;
    for (int k = 0; k < 10; ++k) {
      const StepLog::Watch::Steps steps = watch.Read();
      if (last != 0) last += steps.num_dropped;
      for (const auto& record : steps.records) {
        EXPECT_TRUE(last == 0 || record->number == last + 1);
        last = record->number;
      }
      watch.Take(steps, steps.records.size());
    }
  }
  engine.join();
}

}  // namespace
}  // namespace continuo::engine
