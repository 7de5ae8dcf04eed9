// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/gateway/traces.h"

#include <gmock/gmock.h>

namespace continuo::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Returns the arrival of each request, and which one it is.
std::vector<std::pair<double, int64_t>> Arrivals(const std::vector<TraceRequest>& trace) {
  std::vector<std::pair<double, int64_t>> arrivals;
  for (const TraceRequest& request : trace) {
    arrivals.emplace_back(request.arrival, request.input_tokens);
  }
  return arrivals;
}

std::vector<TraceRequest> Trace() {
  return {{.arrival = 0, .input_tokens = 1},
          {.arrival = 1, .input_tokens = 2},
          {.arrival = 4, .input_tokens = 3}};
}

TEST(OverlaidTest, OneCopyIsTheRecording) {
  EXPECT_THAT(Arrivals(Overlaid(Trace(), 1, 1e9)), ElementsAre(Pair(0, 1), Pair(1, 2), Pair(4, 3)));
  EXPECT_THAT(Arrivals(Overlaid(Trace(), 1, 4)), ElementsAre(Pair(0, 1), Pair(1, 2)));
}

TEST(OverlaidTest, EachCopyBeginsSomewhereElse) {
  EXPECT_EQ(Overlaid(Trace(), 2, 1e9).size(), 6u);
  EXPECT_THAT(Arrivals(Overlaid(Trace(), 2, 2.5)),
              ElementsAre(Pair(0, 1), Pair(1, 2), Pair(::testing::DoubleNear(2, 1e-9), 3),
                          Pair(::testing::DoubleNear(2, 1e-9), 1)));
}

TEST(OverlaidTest, OneRequestComesAtOnce) {
  EXPECT_THAT(Arrivals(Overlaid({{.arrival = 0, .input_tokens = 1}}, 1, 10)),
              ElementsAre(Pair(0, 1)));
}

}  // namespace
}  // namespace continuo::gateway
