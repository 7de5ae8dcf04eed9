// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_watchers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/protocol/error.h"

namespace continuo::gateway::openai {
namespace {

class StepWatchersTest : public ::testing::Test {
 protected:
  // Enters until there is no place, at most `number` times. Returns how often that went.
  int Enter(const std::string& tenant, int number = 100) {
    for (int i = 0; i < number; ++i) {
      auto place = watchers_.Enter(tenant, MakeQueue());
      if (!place.ok()) {
        EXPECT_TRUE(absl::IsResourceExhausted(place.status()));
        EXPECT_EQ(protocol::ReasonOf(place.status()), protocol::kReasonOverloaded);
        return i;
      }
      places_.push_back(*std::move(place));
    }
    return number;
  }
  static std::shared_ptr<StepQueue> MakeQueue() {
    return std::make_shared<StepQueue>([] {}, std::make_shared<const StepIds>());
  }

  StepWatchers watchers_{10};
  std::vector<std::unique_ptr<StepWatchers::Place>> places_;
};

TEST_F(StepWatchersTest, ATenantLeavesPlacesForOthers) {
  EXPECT_EQ(Enter("a"), 8);
  EXPECT_EQ(Enter("b"), 1);  // four fifths of two
  EXPECT_EQ(Enter("c"), 1);
  EXPECT_EQ(Enter("d"), 0);
  EXPECT_EQ(Enter("a"), 0);
}

TEST_F(StepWatchersTest, APlaceIsGivenBack) {
  EXPECT_EQ(Enter("a"), 8);
  places_.erase(places_.begin() + 3);
  EXPECT_EQ(Enter("a"), 1);
  places_.clear();
  EXPECT_EQ(Enter("b"), 8);
}

TEST_F(StepWatchersTest, AllEndTogetherAndNobodyFollows) {
  const auto queue = MakeQueue();
  const auto place = watchers_.Enter("a", queue);
  ASSERT_TRUE(place.ok());
  EXPECT_FALSE(queue->Take().end.has_value());
  watchers_.EndAll(absl::UnavailableError("over"));
  EXPECT_EQ(queue->Take().end, absl::UnavailableError("over"));
  EXPECT_EQ(watchers_.Enter("b", MakeQueue()).status(), absl::UnavailableError("over"));
}

}  // namespace
}  // namespace continuo::gateway::openai
