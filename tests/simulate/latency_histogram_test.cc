// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/latency_histogram.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace continuo::simulate {
namespace {

TEST(LatencyHistogramTest, PercentilesAreThoseOfTheSortedValuesToHalfAPercent) {
  std::mt19937_64 random(1);
  LatencyHistogram histogram;
  std::vector<double> values;
  for (int i = 0; i < 20'000; ++i) {
    // From 10 µs to 1,000 s.
    values.push_back(std::pow(10, -5 + 8 * static_cast<double>(random() % 1'000'000) / 1e6));
    histogram.Record(absl::Seconds(values.back()));
  }
  std::ranges::sort(values);
  for (const double share : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const double exact =
        values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
    EXPECT_NEAR(histogram.Percentile(share) / exact, 1, 0.0051) << share;
  }
  EXPECT_NEAR(histogram.max(), values.back(), 1e-6);
}

TEST(LatencyHistogramTest, ManyTimesIsAsOftenOneByOne) {
  LatencyHistogram once, often;
  once.Record(absl::Milliseconds(3), 7);
  once.Record(absl::Milliseconds(50), 3);
  for (int i = 0; i < 7; ++i) often.Record(absl::Milliseconds(3));
  for (int i = 0; i < 3; ++i) often.Record(absl::Milliseconds(50));
  EXPECT_EQ(once.count(), often.count());
  EXPECT_NEAR(once.mean(), often.mean(), 1e-12);
  for (const double share : {0.5, 0.7, 0.71, 1.0}) {
    EXPECT_EQ(once.Percentile(share), often.Percentile(share)) << share;
  }
}

TEST(LatencyHistogramTest, NothingAndTheExtremesHavePlaces) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  EXPECT_EQ(histogram.mean(), 0);
  histogram.Record(absl::ZeroDuration());
  EXPECT_EQ(histogram.Percentile(0.5), 0);
  histogram.Record(absl::Hours(1000));
  EXPECT_EQ(histogram.max(), 3.6e6);
  EXPECT_GT(histogram.Percentile(1), 3600.0);
}

}  // namespace
}  // namespace continuo::simulate
