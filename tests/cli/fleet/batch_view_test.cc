// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/batch_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_split.h"
#include "tests/cli/fleet/steps.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;
using testing::MakeStep;
using testing::MakeSteps;
using ::testing::Not;

constexpr auto kLength = v1::FINISH_REASON_LENGTH;

v1::WatchLoadResponse SomeLoad(const std::string& incarnation = "1") {
  v1::WatchLoadResponse load;
  load.set_worker("w0");
  load.set_incarnation(incarnation);
  load.set_model("m");
  load.set_state(v1::WORKER_STATE_SERVING);
  load.set_running_requests(2);
  load.set_waiting_requests(3);
  load.set_used_kv_blocks(25);
  load.set_total_kv_blocks(100);
  load.set_prefill_tokens_per_second(500);
  load.set_decode_tokens_per_second(1234);
  return load;
}

std::string Draw(const BatchView& view) { return view.Draw("here:1", 160, 1000); }

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

TEST(BatchViewTest, DrawsWorkerAndRows) {
  BatchView view;
  view.Take(SomeLoad());
  view.Take(MakeSteps({MakeStep(7, {{"first", 16, 8, 8, 1}, {"second", 16, 0, 4, 0}})}));
  EXPECT_EQ(
      Draw(view),
      "w0  m  SERVING  step 7  step 8.00 ms, longest 8.00 ms\n"
      "KV [#####               ] 25% of 100  running 2  waiting 3  prompt 500 tok/s  generated "
      "1.23k tok/s\n"
      " ROW  REQUEST              PROMPT  GENERATED  STATE           -cached =prefilled "
      "#generated, 1 "
      "token each\n"
      "   1  first                 16/16          1  generating      --------========#\n"
      "   2  second                 4/16          0  prefill         ====............\n");
}

TEST(BatchViewTest, AnEndStaysUntilTheNextRequestTakesItsRow) {
  BatchView view;
  view.Take(SomeLoad());
  view.Take(MakeSteps({MakeStep(1, {{"a", 4, 0, 4, 1}, {"b", 4, 0, 4, 1, kLength}})}));
  EXPECT_THAT(Lines(Draw(view))[4], HasSubstr("b"));
  EXPECT_THAT(Lines(Draw(view))[4], HasSubstr("end: length"));
  view.Take(MakeSteps({MakeStep(2, {{"a", 4, 4, 1, 2}, {"c", 4, 0, 4, 1}})}));
  EXPECT_THAT(Lines(Draw(view))[4], HasSubstr("c"));
  EXPECT_THAT(Draw(view), Not(HasSubstr("end:")));
}

TEST(BatchViewTest, BarsFitTheWidthAndLinesTheHeight) {
  BatchView view;
  view.Take(SomeLoad());
  v1::Step step;
  for (uint32_t i = 0; i < 300; ++i) {
    v1::StepSequence& s = *step.add_sequences();
    s.set_request_id("request-" + std::to_string(i));
    s.set_prompt_tokens(i * 1000);
    s.set_new_tokens(i * 999);
    s.set_generated_tokens(i * 77);
  }
  view.Take(MakeSteps({step}));
  for (const size_t width : {1u, 10u, 60u, 80u, 200u}) {
    for (const size_t height : {1u, 3u, 24u, 300u, 400u}) {
      const std::string text = view.Draw("here:1", width, height);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), static_cast<int64_t>(height));
      for (const std::string& line : Lines(text)) EXPECT_LE(line.size(), width);
    }
  }
  EXPECT_THAT(view.Draw("here:1", 80, 24), HasSubstr("280 more rows"));
}

TEST(BatchViewTest, AWorkerThatIsGoneIsToldAndItsRowsAreNot) {
  BatchView view;
  EXPECT_THAT(Draw(view), HasSubstr("here:1  connecting"));
  view.Take(SomeLoad());
  view.Take(MakeSteps({MakeStep(1, {{"a", 4, 0, 4, 1}})}));
  view.LoseSteps(absl::UnavailableError("away"));
  EXPECT_THAT(Draw(view), HasSubstr("steps: UNAVAILABLE: away"));
  view.LoseLoad(absl::UnavailableError("away"));
  EXPECT_THAT(Draw(view), HasSubstr("here:1  UNREACHABLE  UNAVAILABLE: away"));
  EXPECT_THAT(Draw(view), Not(HasSubstr("generating")));
  view.Take(SomeLoad("2"));
  view.Take(MakeSteps({MakeStep(1, {{"b", 4, 0, 4, 1}})}));
  EXPECT_THAT(Draw(view), HasSubstr("SERVING"));
  EXPECT_THAT(Draw(view), HasSubstr("   1  b  "));
}

TEST(BatchViewTest, AnotherProcessBeginsWithNoRows) {
  BatchView view;
  view.Take(SomeLoad("1"));
  view.Take(MakeSteps({MakeStep(1, {{"a", 4, 0, 4, 1}})}));
  view.Take(SomeLoad("2"));
  EXPECT_TRUE(view.batch().rows().empty());
}

TEST(BatchViewTest, WhoLeftWithoutALastStepIsGoneWhenNothingRuns) {
  BatchView view;
  view.Take(SomeLoad());
  view.Take(MakeSteps({MakeStep(1, {{"a", 4, 0, 4, 1}})}));
  v1::WatchLoadResponse idle = SomeLoad();
  idle.set_running_requests(0);
  idle.set_waiting_requests(0);
  view.Take(idle);
  EXPECT_THAT(Draw(view), HasSubstr("gone"));
}

TEST(BatchViewTest, StepsThatWereNotSeenAreTold) {
  BatchView view;
  view.Take(SomeLoad());
  view.Take(MakeSteps({MakeStep(9, {{"a", 4, 0, 4, 1}})}, /*num_dropped=*/8));
  EXPECT_THAT(Draw(view), HasSubstr("8 steps not seen"));
}

TEST(BatchViewTest, WhateverAWorkerSaysOnlyPrintableCharactersAreDrawn) {
  const std::string evil = "\x1b]0;owned\x07\x1b[2J\r\n\u009b31m\u202e";
  BatchView view;
  v1::WatchLoadResponse load = SomeLoad();
  load.set_worker(evil);
  load.set_model(evil);
  load.set_state(static_cast<v1::WorkerState>(77));
  load.set_total_kv_blocks(0);
  load.set_decode_tokens_per_second(std::numeric_limits<float>::quiet_NaN());
  load.set_prefill_tokens_per_second(-std::numeric_limits<float>::infinity());
  view.Take(load);
  view.Take(MakeSteps({MakeStep(1, {{evil, 4'000'000'000, 4'000'000'000, 1, 4'000'000'000}})}));
  std::vector<std::string> pictures = {Draw(view)};
  view.LoseSteps(absl::InternalError(evil));
  pictures.push_back(Draw(view));
  view.LoseLoad(absl::InternalError(evil));
  pictures.push_back(view.Draw(evil, 80, 24));
  for (const std::string& picture : pictures) {
    for (const char c : picture) {
      EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c) << " in " << picture;
    }
  }
}

}  // namespace
}  // namespace continuo::cli
