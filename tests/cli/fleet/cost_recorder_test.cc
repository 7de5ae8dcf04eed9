// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/cost_recorder.h"

#include <gmock/gmock.h>

#include "services/protocol/proto_time.h"
#include "services/worker/profile/worker_profile.h"
#include "tests/cli/fleet/steps.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;
using testing::MakeStep;
using testing::MakeSteps;

v1::WatchLoadResponse LoadOf(uint32_t blocks) {
  v1::WatchLoadResponse load;
  load.set_worker("w0");
  load.set_model("tiny");
  load.set_total_kv_blocks(blocks);
  load.set_block_size_tokens(8);
  load.set_max_running_requests(32);
  return load;
}

// Steps of 2 ms, 0.5 ms a token and 1 ms a sample, with a pause behind each. Every fourth has a
// chunk of a prompt, which is no sample.
v1::WatchStepsResponse Steps(int count, absl::Duration pause) {
  std::vector<v1::Step> steps;
  absl::Time start = absl::FromUnixSeconds(1000);
  for (int i = 0; i < count; ++i) {
    std::vector<testing::StepRow> rows;
    const int decodes = 1 + i % 5;
    for (int n = 0; n < decodes; ++n)
      rows.push_back({"d", 10, 10 + static_cast<uint32_t>(i), 1, 1});
    const uint32_t chunk = i % 4 == 0 ? 16 : 0;
    if (chunk > 0) rows.push_back({"p", 100, 20, chunk, 0});
    v1::Step step = MakeStep(static_cast<uint64_t>(i), rows);
    const absl::Duration took = absl::Milliseconds(2 + 0.5 * (decodes + chunk) + decodes);
    *step.mutable_start_time() = protocol::ToProto(start);
    *step.mutable_duration() = protocol::ToProto(took);
    start += took + pause;
    steps.push_back(std::move(step));
  }
  return MakeSteps(steps);
}

TEST(CostRecorderTest, TheFileHasTheCostAndTheSizeOfTheWorker) {
  CostRecorder recorder;
  recorder.Take(LoadOf(640));
  recorder.Take(Steps(200, absl::ZeroDuration()));
  const auto json = recorder.Profile();
  ASSERT_TRUE(json.ok()) << json.status();
  const auto profile = profile::ParseProfile(*json);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->name, "w0, tiny");
  EXPECT_EQ(profile->engine.num_blocks, 640);
  EXPECT_EQ(profile->engine.block_size, 8);
  EXPECT_EQ(profile->engine.max_running, 32);
  EXPECT_NEAR(profile->step.fixed, 2e-3, 1e-4);
  EXPECT_NEAR(profile->step.per_token, 5e-4, 2e-5);
  EXPECT_NEAR(profile->step.per_sample, 1e-3, 5e-5);
  EXPECT_LT(recorder.Error(), 0.01);
}

TEST(CostRecorderTest, AShortPauseIsTheHostsAndALongOneIsIdle) {
  for (const auto& [pause, fixed] : {std::pair(1.0, 3e-3), std::pair(3.0, 2e-3)}) {
    CostRecorder recorder;
    recorder.Take(LoadOf(640));
    recorder.Take(Steps(200, absl::Milliseconds(pause)));
    const auto profile = profile::ParseProfile(*recorder.Profile());
    ASSERT_TRUE(profile.ok()) << profile.status();
    EXPECT_NEAR(profile->step.fixed, fixed, 1e-4) << pause;
  }
}

TEST(CostRecorderTest, TooLittleIsAnError) {
  CostRecorder recorder;
  recorder.Take(Steps(200, absl::ZeroDuration()));
  EXPECT_THAT(std::string(recorder.Profile().status().message()), HasSubstr("KV cache"));
  CostRecorder idle;
  idle.Take(LoadOf(640));
  EXPECT_THAT(std::string(idle.Profile().status().message()), HasSubstr("0 steps were seen"));
}

}  // namespace
}  // namespace continuo::cli
