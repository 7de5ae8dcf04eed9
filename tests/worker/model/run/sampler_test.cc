// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "services/worker/model/run/philox.h"
#include "tests/testing/reference_sampler.h"
#include "tests/worker/model/run/sampler_cases.h"

namespace continuo::model {
namespace {

using ::continuo::testing::RandomCase;
using ::continuo::testing::ReferenceDraw;
using ::continuo::testing::ReferenceLogprobs;
using ::continuo::testing::ReferenceSample;
using ::continuo::testing::ReferenceUniform;
using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int32_t Pick(const SampleInput& input) {
  SamplerScratch scratch;
  return SampleToken(input, scratch).token_id;
}

TEST(PhiloxTest, GivesTheAuthorsKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformsAreThoseOfTheReference) {
  for (uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}, uint64_t{1} << 40}) {
    for (int32_t position : {0, 1, 1000000}) {
      EXPECT_EQ(UniformNumber(seed, 3, position), ReferenceUniform(seed, 3, position));
    }
  }
}

// The rounding of float32 through penalties and temperature, on numbers up to about 32.
constexpr double kRounding = 2e-5;

TEST(SamplerTest, DrawsWhatTheFloat64ReferenceDraws) {
  SamplerScratch scratch;
  int close = 0;
  std::map<int, int> num_kept;
  constexpr int kCases = 20000;
  for (int number = 0; number < kCases; ++number) {
    const RandomCase one(static_cast<uint64_t>(number));
    const ReferenceDraw expected = ReferenceSample(one.input);
    if (expected.margin < kRounding) {
      ++close;
      continue;
    }
    ++num_kept[std::min(expected.num_kept, 4)];
    ASSERT_EQ(SampleToken(one.input, scratch).token_id, expected.token_id) << "case " << number;
  }
  EXPECT_LT(close, kCases / 50);
  // The settings filter, but not everything.
  EXPECT_GT(num_kept[1], kCases / 20);
  EXPECT_GT(num_kept[4], kCases / 5);
}

TEST(SamplerTest, TheDrawDoesNotDependOnWhatTheScratchHeldBefore) {
  SamplerScratch used;
  for (uint64_t number = 0; number < 500; ++number) {
    const RandomCase one(number);
    ASSERT_EQ(SampleToken(one.input, used).token_id, Pick(one.input)) << "case " << number;
  }
}

TEST(SamplerTest, FrequenciesFollowTheProbabilities) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), -kInfinity, std::log(5.0f)};
  SampleInput input{.logits = logits};
  std::array<int, 4> count = {};
  constexpr int kDraws = 80000;
  for (int position = 0; position < kDraws; ++position) {
    input.position = position;
    ++count[static_cast<size_t>(Pick(input))];
  }
  // Five standard deviations of a count are below 2.5 √n.
  const double slack = 2.5 * std::sqrt(kDraws);
  EXPECT_NEAR(count[0], kDraws / 8.0, slack);
  EXPECT_NEAR(count[1], kDraws / 4.0, slack);
  EXPECT_EQ(count[2], 0);
  EXPECT_NEAR(count[3], kDraws * 5 / 8.0, slack);
}

TEST(SamplerTest, SeedIndexAndPositionEachChangeTheDraw) {
  const std::vector<float> logits(1000, 0.0f);
  const SampleInput base{.logits = logits, .params = {.seed = 1}, .position = 10};
  SampleInput seed = base, index = base, position = base;
  seed.params.seed = uint64_t{1} << 32;
  index.params.sequence_index = 1;
  position.position = 11;
  EXPECT_EQ(Pick(base), Pick(base));
  EXPECT_NE(Pick(base), Pick(seed));
  EXPECT_NE(Pick(base), Pick(index));
  EXPECT_NE(Pick(base), Pick(position));
}

TEST(SamplerTest, TiesGoToTheLowestId) {
  const std::vector<float> logits = {1, 3, 2, 3, 3};
  EXPECT_EQ(Pick({.logits = logits, .params = {.temperature = 0}}), 1);
  SampleInput input{.logits = logits, .params = {.top_k = 2}};
  for (input.position = 0; input.position < 200; ++input.position) {
    EXPECT_THAT(Pick(input), ::testing::AnyOf(1, 3));
  }
  input.params = {.top_p = 0.25f};  // the first of three equal ones is enough
  for (input.position = 0; input.position < 200; ++input.position) EXPECT_EQ(Pick(input), 1);
}

TEST(SamplerTest, NothingIsDrawnForATarget) {
  const std::vector<float> logits = {0, 0, 9, 0};
  SamplerScratch scratch;
  const SampleOutput output = SampleToken(
      {.logits = logits, .params = {.temperature = 0, .num_logprobs = 1}, .target = 3}, scratch);
  EXPECT_EQ(output.token_id, 3);
  EXPECT_NEAR(output.score.logprob, -9.00037, 1e-4);
  ASSERT_EQ(output.score.alternatives.size(), 1u);
  EXPECT_EQ(output.score.alternatives[0].token_id, 2);
}

TEST(SamplerTest, LogprobsAreThoseBeforeEverything) {
  SamplerScratch scratch;
  for (uint64_t number = 0; number < 300; ++number) {
    RandomCase one(number);
    one.input.params.num_logprobs = static_cast<int32_t>(number % 21);
    const SampleOutput output = SampleToken(one.input, scratch);
    const std::vector<double> expected = ReferenceLogprobs(one.logits);
    EXPECT_NEAR(output.score.logprob, expected[static_cast<size_t>(output.token_id)], 1e-5);
    const size_t n = std::min<size_t>(number % 21, one.logits.size());
    ASSERT_EQ(output.score.alternatives.size(), n);
    for (size_t i = 0; i < n; ++i) {
      const TokenAlternative& a = output.score.alternatives[i];
      EXPECT_NEAR(a.logprob, expected[static_cast<size_t>(a.token_id)], 1e-5);
      // Most likely first, of equals the lower id.
      if (i == 0) continue;
      const TokenAlternative& before = output.score.alternatives[i - 1];
      const float left = one.logits[static_cast<size_t>(before.token_id)];
      const float right = one.logits[static_cast<size_t>(a.token_id)];
      EXPECT_TRUE(left > right || (left == right && before.token_id < a.token_id));
    }
  }
}

TEST(SamplerTest, NoLogprobsWhereNoneAreAskedFor) {
  const std::vector<float> logits = {0, 1};
  SamplerScratch scratch;
  EXPECT_EQ(SampleToken({.logits = logits}, scratch).score.logprob, 0.0f);
  const SampleOutput zero = SampleToken({.logits = logits, .params = {.num_logprobs = 0}}, scratch);
  EXPECT_LT(zero.score.logprob, 0.0f);
  EXPECT_TRUE(zero.score.alternatives.empty());
}

TEST(SamplerTest, MaskForbidsAndBiasDoesNotBringBack) {
  const std::vector<float> logits = {9, 1, 2};
  const std::vector<uint32_t> mask = {0b110};
  const std::vector<kernels::LogitBias> biases = {{0, 100}, {1, 2}};
  const SampleInput input{.logits = logits,
                          .params = {.temperature = 0, .masked = true},
                          .biases = biases,
                          .mask = mask};
  EXPECT_EQ(Pick(input), 1);
}

TEST(SamplerTest, StrangeLogitsEndNothing) {
  const SamplingParams greedy = {.temperature = 0};
  const std::vector<float> some = {kNaN, 1, kInfinity, -kInfinity};
  EXPECT_EQ(Pick({.logits = some, .params = greedy}), 2);
  const std::vector<float> nan_first = {kNaN, 1, 0};
  EXPECT_EQ(Pick({.logits = nan_first, .params = greedy}), 1);
  SamplerScratch scratch;
  for (const float strange : {kNaN, -kInfinity, kInfinity, 3e38f, -3e38f}) {
    for (const size_t vocab : {1u, 2u, 17u, 2000u}) {
      const std::vector<float> all(vocab, strange);
      for (const SamplingParams& params :
           {greedy, SamplingParams{}, SamplingParams{.top_k = 3, .top_p = 0.5f},
            SamplingParams{.min_p = 1}, SamplingParams{.temperature = 1e-38f, .top_p = 1e-6f},
            SamplingParams{.temperature = 100, .top_p = 0.9f, .num_logprobs = 20}}) {
        const std::vector<kernels::SeenToken> seen = {{0, 2}};
        SampleInput input{.logits = all, .params = params, .seen = seen};
        input.params.repetition_penalty = 1e-6f;
        const SampleOutput output = SampleToken(input, scratch);
        EXPECT_GE(output.token_id, 0);
        EXPECT_LT(output.token_id, static_cast<int32_t>(vocab));
        EXPECT_FALSE(std::isnan(output.score.logprob));
      }
    }
  }
}

TEST(SamplerTest, WhereNothingIsLeftTheLowestAllowedIdIsDrawn) {
  const std::vector<float> logits(100, -kInfinity);
  std::vector<uint32_t> mask(4, 0);
  SampleInput input{.logits = logits, .params = {.masked = true}, .mask = mask};
  EXPECT_EQ(Pick(input), 0);
  mask[2] = 1u << 5;
  EXPECT_EQ(Pick(input), 69);
}

TEST(SamplerTest, ATokenOnceMoreInTheAnswerIsCountedAmongThoseSeen) {
  int num_changed = 0;
  for (uint64_t number = 0; number < 500; ++number) {
    RandomCase one(number);
    const int32_t before = Pick(one.input);
    one.CountOnceMore(number);
    const int32_t drawn = Pick(one.input);
    num_changed += drawn != before ? 1 : 0;
    AddSeen(one.seen, one.input.answered);
    one.input.seen = one.seen;
    one.input.answered = -1;
    EXPECT_EQ(Pick(one.input), drawn) << number;
  }
  EXPECT_GT(num_changed, 20);
}

// The bits of samples and scores of a fixed set of cases: whoever changes them must raise
// kArithmeticVersion.
TEST(SamplerTest, BitsArePinned) {
  SamplerScratch scratch;
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](uint32_t bits) { hash = (hash ^ bits) * 0x100000001b3u; };
  for (uint64_t number = 0; number < 2000; ++number) {
    RandomCase one(number);
    one.input.params.num_logprobs = 2;
    const SampleOutput output = SampleToken(one.input, scratch);
    add(static_cast<uint32_t>(output.token_id));
    add(std::bit_cast<uint32_t>(output.score.logprob));
  }
  EXPECT_EQ(hash, 7076986447295294850u);
}

}  // namespace
}  // namespace continuo::model
