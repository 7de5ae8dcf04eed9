// SPDX-License-Identifier: Apache-2.0
// Tests sequences that obey a constraint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/oracle_drafter.h"
#include "tests/testing/scripted_constraint.h"
#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int32_t kEnd = 49;  // the stop id of these tests

Request Constrained(int salt, int max_tokens, const Script& script) {
  Request request = RequestOf(Tokens(5, salt), max_tokens);
  request.stop_ids = {kEnd};
  Constrain(request, script);
  return request;
}

void ExpectAlone(Harness& h, RequestId id, int index = 0) {
  ASSERT_TRUE(h.status().ok()) << h.status();
  ASSERT_TRUE(h.received(id).ended.has_value());
  EXPECT_TRUE(h.received(id).ended->ok()) << *h.received(id).ended;
  EXPECT_EQ(h.received(id).answers[static_cast<size_t>(index)], h.Expected(id, index));
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

// The constraint has accepted what was delivered, but for the stop id.
void ExpectInStep(const Request& request, std::vector<int32_t> answer, int index = 0) {
  if (!answer.empty() && std::ranges::binary_search(request.stop_ids, answer.back())) {
    answer.pop_back();
  }
  EXPECT_EQ(ConstraintOf(request, index).accepted(), answer);
}

TEST(ConstraintsTest, AnAnswerObeysItsConstraintAndItsNeighbourIsAsAlone) {
  Harness h;
  const Request request = Constrained(1, 60, Balanced(3, 4, 3));
  const RequestId id = h.Add(request), neighbour = h.Add(RequestOf(Tokens(5, 2), 30));
  h.RunToEnd();
  ExpectAlone(h, id);
  ExpectAlone(h, neighbour);
  int depth = 0;
  std::vector<int32_t> answer = h.received(id).answers[0];
  ASSERT_GT(answer.size(), 2u);
  ExpectInStep(request, answer);
  if (answer.back() == kEnd) {
    EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
    answer.pop_back();
  }
  for (const int32_t token : answer) {
    ASSERT_TRUE(token == 3 || token == 4) << token;
    depth += token == 3 ? 1 : -1;
    EXPECT_TRUE(depth >= 0 && depth <= 3);
  }
}

TEST(ConstraintsTest, WhatMustEndEndsWithoutAnEndToken) {
  for (const bool ignores_end : {false, true}) {
    for (const int min_tokens : {0, 4, 20}) {
      Harness h;
      Request request = Constrained(1, 60, Multiples(7, 4));
      if (ignores_end) request.stop_ids.clear();
      request.min_tokens = min_tokens;
      const RequestId id = h.Add(request);
      h.RunToEnd();
      ExpectAlone(h, id);
      EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
      EXPECT_THAT(h.received(id).answers[0], SizeIs(4));
      for (const int32_t token : h.received(id).answers[0]) EXPECT_EQ(token % 7, 0);
      ExpectInStep(request, h.received(id).answers[0]);
    }
  }
}

// Runs scripted constraints of all kinds, with neighbours, in every kind of schedule.
TEST(ConstraintsTest, EveryScheduleGivesTheAnswerOfTheRequestAlone) {
  const Script scripts[] = {Balanced(3, 4, 2),
                            Multiples(7, 12),
                            Alternating(),
                            AfterThought({0, 1, 2, 3, 4, 5}, Balanced(8, 9, 3)),
                            RandomAutomaton(1, false),
                            RandomAutomaton(2, true),
                            RandomAutomaton(3, true)};
  uint64_t preemptions = 0, right_drafts = 0;
  int ended = 0;
  for (const int percent : {-1, 0, 60, 100}) {  // of drafts that are right; -1: none
    for (const int chunk : {512, 1, 3}) {
      for (const int blocks : {256, 17}) {
        EngineOptions options{
            .num_blocks = blocks, .max_prefill_chunk = chunk, .expected_answer_tokens = 4};
        if (percent >= 0) options.drafter = std::make_shared<OracleDrafter>(50, percent);
        Harness h(options);
        std::vector<std::pair<RequestId, Request>> all;
        for (int i = 0; i < static_cast<int>(std::size(scripts)); ++i) {
          Request request = Constrained(i, 40, scripts[static_cast<size_t>(i)]);
          request.min_tokens = i % 2 == 0 ? 0 : 9;
          request.num_sequences = 1 + i % 3;
          request.sampling.seed = 5;
          request.sampling.frequency_penalty = i % 4 == 0 ? 0.5f : 0.0f;
          Constrain(request, scripts[static_cast<size_t>(i)]);
          all.emplace_back(h.Add(request), request);
          const Request neighbour = RequestOf(Tokens(5, 20 + i), 20);
          all.emplace_back(h.Add(neighbour), neighbour);
        }
        percent == 0 ? h.RunOverlappedToEnd() : h.RunToEnd();
        for (const auto& [id, request] : all) {
          for (int i = 0; i < request.num_sequences; ++i) {
            ExpectAlone(h, id, i);
            if (request.constraints.empty()) continue;
            ExpectInStep(request, h.received(id).answers[static_cast<size_t>(i)], i);
            ended += h.received(id).finish[static_cast<size_t>(i)] == FinishReason::kStop;
          }
        }
        preemptions += h.metrics().preemptions;
        right_drafts += h.metrics().accepted_draft_tokens;
      }
    }
  }
  EXPECT_GT(preemptions, 20u);
  EXPECT_GT(right_drafts, 100u);
  EXPECT_GT(ended, 100);
}

TEST(ConstraintsTest, DraftsAreCutWhereTheConstraintEndsOrForbidsThem) {
  // Drafts of these always go on without the constraint, which forbids most of them.
  class Unaware : public Drafter {
   public:
    void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override {
      Request free = s.request->request;
      free.constraints.clear();
      free.received = {{.tokens = s.answer}};
      free.max_tokens = static_cast<int>(s.answer.size()) + most;
      const std::vector<int32_t> answer = FakeAnswer(free, 0, 50);
      drafts.assign(answer.begin() + static_cast<ptrdiff_t>(s.answer.size()), answer.end());
      asked += static_cast<int>(drafts.size());
    }
    int asked = 0;
  };
  const auto unaware = std::make_shared<Unaware>();
  Harness h(EngineOptions{.drafter = unaware});
  const Request request = Constrained(1, 40, Multiples(7, 30));
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ExpectAlone(h, id);
  EXPECT_GT(unaware->asked, 3);
  EXPECT_LT(h.metrics().draft_tokens, static_cast<uint64_t>(unaware->asked));

  // Right drafts up to the end: no row is computed for what can only come after it.
  Harness right(EngineOptions{.drafter = std::make_shared<OracleDrafter>(50, 100)});
  const Request ending = Constrained(1, 40, Multiples(7, 12));
  right.Add(ending);
  int64_t rows = 0;
  while (!right.scheduler().idle() && right.status().ok()) rows += right.Step().num_rows();
  ExpectAlone(right, 1);
  EXPECT_EQ(rows, 5 + 11);  // the prompt, and each token but the last
}

TEST(ConstraintsTest, AnOpenThoughtNeedsNoMask) {
  Harness h;
  Request request = Constrained(1, 40, AfterThought({0, 1, 2, 3, 4}, Multiples(7, 4)));
  request.stop_ids.clear();
  const RequestId id = h.Add(request);
  int unmasked = 0, masked = 0;
  while (!h.scheduler().idle() && h.status().ok()) {
    const model::StepPlan plan = h.Step();
    ASSERT_EQ(plan.num_samples(), 1);
    plan.sampling[0].masked ? ++masked : ++unmasked;
  }
  ExpectAlone(h, id);
  EXPECT_EQ(masked, 4);
  EXPECT_GT(unmasked, 2);
  EXPECT_EQ(ConstraintOf(request).num_masks(), 4);
  EXPECT_EQ(h.metrics().constrained_samples, 4u);
}

TEST(ConstraintsTest, AContinuationGoesOnFromEveryPlace) {
  for (const bool ends_by_token : {false, true}) {
    const Script script = ends_by_token ? Alternating() : Multiples(7, 9);
    Harness whole;
    const RequestId first = whole.Add(Constrained(1, 12, script));
    whole.RunToEnd();
    ExpectAlone(whole, first);
    const std::vector<int32_t> answer = whole.received(first).answers[0];
    ASSERT_GE(answer.size(), 5u);
    for (size_t cut = 0; cut <= answer.size(); ++cut) {
      Harness h;
      Request request = RequestOf(Tokens(5, 1), 12);
      request.stop_ids = {kEnd};
      request.received = {
          {.tokens = {answer.begin(), answer.begin() + static_cast<ptrdiff_t>(cut)}}};
      Constrain(request, script);
      const RequestId id = h.Add(request);
      if (cut == answer.size()) {
        EXPECT_TRUE(h.scheduler().idle());  // nothing is computed
      }
      h.RunToEnd();
      ASSERT_TRUE(h.status().ok()) << h.status();
      EXPECT_TRUE(h.received(id).ended->ok());
      EXPECT_EQ(h.received(id).answers[0],
                std::vector<int32_t>(answer.begin() + static_cast<ptrdiff_t>(cut), answer.end()));
      EXPECT_EQ(h.received(id).finish[0], whole.received(first).finish[0]);
      EXPECT_EQ(h.steps(), static_cast<int64_t>(answer.size() - cut));
    }
  }
}

TEST(ConstraintsTest, WhatMayBeLeftOfConstraintAndRequestComes) {
  Harness h;
  // The constraint alone counts where both leave nothing.
  Request disjoint = Constrained(1, 9, Multiples(7, 4));
  disjoint.allowed_mask = {0x6, 0};  // 1 and 2
  Request both = Constrained(2, 9, Multiples(7, 4));
  both.allowed_mask = {1u << 7 | 1u << 6 | 1u << 14, 0};
  both.barred = {{14}};
  const RequestId a = h.Add(disjoint), b = h.Add(both);
  h.RunToEnd();
  ExpectAlone(h, a);
  ExpectAlone(h, b);
  for (const int32_t token : h.received(a).answers[0]) EXPECT_EQ(token % 7, 0);
  EXPECT_THAT(h.received(b).answers[0], ElementsAre(7, 7, 7, 7));
}

// The constraint may end at once, but says more while it may.
TEST(ConstraintsTest, BeforeMinTokensAnEndComesOnlyWhereNothingElseCan) {
  const Script until_five = [](std::span<const int32_t> ids) {
    Scripted here;
    here.can_end = true;
    here.allows = [n = ids.size()](int32_t id) { return n < 5 && id == 1; };
    return here;
  };
  for (const int min_tokens : {2, 5, 9}) {
    Harness h;
    Request request = Constrained(1, 20, until_five);
    request.min_tokens = min_tokens;
    const RequestId id = h.Add(request);
    h.RunToEnd();
    ExpectAlone(h, id);
    const std::vector<int32_t>& answer = h.received(id).answers[0];
    EXPECT_EQ(answer.back(), kEnd);
    EXPECT_EQ(h.received(id).finish[0], FinishReason::kStop);
    EXPECT_THAT(answer, SizeIs(::testing::AllOf(::testing::Ge(std::min(min_tokens, 5) + 1u),
                                                ::testing::Le(6u))));
  }
}

TEST(ConstraintsTest, PromptLogprobsAreAsWithoutIt) {
  Harness h;
  Request request = Constrained(1, 9, Multiples(7, 4));
  request.num_prompt_logprobs = 1;
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ExpectAlone(h, id);
  ASSERT_EQ(h.received(id).prompt_scores.size(), request.prompt.size() - 1);
  for (int i = 0; i + 1 < static_cast<int>(request.prompt.size()); ++i) {
    EXPECT_EQ(h.received(id).prompt_scores[static_cast<size_t>(i)].logprob,
              FakePromptScore(request, i, 50).logprob);
  }
}

// Fails after `n` tokens as `how` says; the same with and without drafts, and for nobody else.
void ExpectFailsAfter(size_t n, const Script& script, absl::StatusCode code, const char* what) {
  for (const int percent : {-1, 100, 50}) {
    EngineOptions options;
    if (percent >= 0) options.drafter = std::make_shared<OracleDrafter>(50, percent);
    Harness h(options);
    Request request = Constrained(1, 30, script);
    request.num_sequences = 2;
    request.sampling.temperature = 0;  // both say the same
    Constrain(request, script);
    const RequestId id = h.Add(request), neighbour = h.Add(RequestOf(Tokens(5, 2), 30));
    h.RunToEnd();
    ASSERT_TRUE(h.status().ok()) << h.status();
    ASSERT_TRUE(h.received(id).ended.has_value());
    EXPECT_EQ(h.received(id).ended->code(), code) << *h.received(id).ended;
    EXPECT_THAT(std::string(h.received(id).ended->message()), HasSubstr(what));
    // Whichever comes there first ends both.
    size_t most = 0;
    for (const auto& answer : h.received(id).answers) most = std::max(most, answer.size());
    EXPECT_EQ(most, n);
    EXPECT_THAT(h.received(id).finish, Each(FinishReason::kNone));
    ExpectAlone(h, neighbour);
    EXPECT_EQ(h.scheduler().pool().num_used(), 0);
  }
}

TEST(ConstraintsTest, AFailureEndsItsRequestWhereItsTokensReachIt) {
  for (const bool in_mask : {false, true}) {
    for (const size_t n : {0u, 1u, 5u}) {
      const Script script = [=](std::span<const int32_t> ids) {
        Scripted here = Multiples(7, 20)(ids);
        if (ids.size() < n) return here;
        (in_mask ? here.mask_failure : here.accept_failure) =
            absl::ResourceExhaustedError("out of fuel");
        return here;
      };
      ExpectFailsAfter(n, script, absl::StatusCode::kResourceExhausted, "out of fuel");
    }
  }
}

TEST(ConstraintsTest, AConstraintThatLeavesNothingEndsItsRequest) {
  const Script dead_end = [](std::span<const int32_t> ids) {
    Scripted here;
    here.allows = [n = ids.size()](int32_t id) { return n < 6 ? id == 1 : id == kEnd; };
    return here;
  };
  ExpectFailsAfter(6, dead_end, absl::StatusCode::kInvalidArgument, "no token");
}

// Refuses what its mask allows.
class Liar : public ScriptedConstraint {
 public:
  Liar() : ScriptedConstraint(Multiples(7, 20)) {}
  bool Accept(int32_t id) override {
    return accepted().size() < 3 && ScriptedConstraint::Accept(id);
  }
};

TEST(ConstraintsTest, ATokenThatTheConstraintRefusesEndsItsRequest) {
  for (const bool drafts : {false, true}) {
    EngineOptions options;
    if (drafts) options.drafter = std::make_shared<OracleDrafter>(50, 100);
    Harness h(options);
    Request request = RequestOf(Tokens(5, 1), 30);
    request.label = "refused";
    request.constraints = {std::make_shared<Liar>()};
    const RequestId id = h.Add(request), neighbour = h.Add(RequestOf(Tokens(5, 2), 30));
    while (!h.received(id).ended.has_value() && h.status().ok()) h.Step();
    for (const StepRecord::SequenceRow& row : h.record().sequences) {
      if (row.label == request.label) {
        EXPECT_EQ(row.generated_tokens, 3);
      }
    }
    h.RunToEnd();
    EXPECT_EQ(h.received(id).ended->code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(h.received(id).ended->message()), HasSubstr("refuses token"));
    EXPECT_THAT(h.received(id).answers[0], SizeIs(3));
    ExpectAlone(h, neighbour);
  }
}

// Lets 1 and 2 come, and refuses 2.
class RefusesTwo : public ScriptedConstraint {
 public:
  RefusesTwo() : ScriptedConstraint(OneOrTwo()) {}
  static Script OneOrTwo() {
    return [](std::span<const int32_t>) {
      Scripted here;
      here.allows = [](int32_t id) { return id == 1 || id == 2; };
      return here;
    };
  }
  bool Accept(int32_t id) override { return id != 2 && ScriptedConstraint::Accept(id); }
};

class DraftsOnes : public Drafter {
 public:
  void Propose(const Sequence&, int most, std::vector<int32_t>& drafts) override {
    drafts.assign(static_cast<size_t>(most), 1);
  }
};

// The draft is the last token once more, so it seems to follow where the refused token is gone.
TEST(ConstraintsTest, NothingFollowsARefusedToken) {
  int long_ones = 0;
  for (int salt = 0; salt < 60; ++salt) {
    Harness h(EngineOptions{.drafter = std::make_shared<DraftsOnes>()});
    Request request = RequestOf(Tokens(5, salt), 30);
    Constrain(request, RefusesTwo::OneOrTwo());
    std::vector<int32_t> expected = FakeAnswer(request, 0, 50);
    expected.erase(std::ranges::find(expected, 2), expected.end());
    request.constraints = {std::make_shared<RefusesTwo>()};
    const RequestId id = h.Add(request);
    h.RunToEnd();
    EXPECT_EQ(h.received(id).answers[0], expected);
    EXPECT_EQ(ConstraintOf(request).accepted(), expected);
    EXPECT_EQ(h.scheduler().pool().num_used(), 0);
    long_ones += expected.size() > 2;
  }
  EXPECT_GT(long_ones, 5);
}

TEST(ConstraintsTest, OnlyStepsThatSampleAConstrainedTokenDoNotOverlap) {
  Harness h(EngineOptions{.max_prefill_chunk = 4});
  Request request = RequestOf(Tokens(9, 1), 30);
  request.stop_ids = {kEnd};
  Constrain(request, Balanced(3, 4, 2));
  const RequestId id = h.Add(request);
  h.Begin();
  EXPECT_TRUE(h.scheduler().CanOverlap());  // the first tokens of the prompt
  h.Begin();
  h.Finish();
  EXPECT_TRUE(h.scheduler().CanOverlap());
  h.Begin();  // the last one, and a sample
  h.Finish();
  EXPECT_FALSE(h.scheduler().CanOverlap());
  const RequestId neighbour = h.Add(RequestOf(Tokens(5, 2), 20));
  h.RunOverlappedToEnd();
  ExpectAlone(h, id);
  ExpectAlone(h, neighbour);
}

}  // namespace
}  // namespace continuo::engine
