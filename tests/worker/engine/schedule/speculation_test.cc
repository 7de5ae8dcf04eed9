// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/testing/oracle_drafter.h"
#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::SizeIs;

constexpr int kVocab = 50;

EngineOptions WithDrafts(int percent) {
  EngineOptions options;
  options.vocab_size = kVocab;
  options.drafter = std::make_shared<OracleDrafter>(kVocab, percent);
  return options;
}

Request RequestOf(int prompt, int max_tokens) {
  Request r;
  for (int i = 0; i < prompt; ++i) r.prompt.push_back((7 * i + 3) % kVocab);
  r.max_tokens = max_tokens;
  return r;
}

void ExpectUndisturbed(Harness& h, RequestId id) {
  ASSERT_TRUE(h.status().ok()) << h.status();
  ASSERT_TRUE(h.received(id).ended.has_value());
  EXPECT_TRUE(h.received(id).ended->ok()) << *h.received(id).ended;
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_EQ(h.scheduler().pool().num_used(), 0);
}

TEST(SpeculationTest, AStepGivesEveryDraftThatIsRightAndOneMore) {
  Harness h(WithDrafts(100));
  h.Add(RequestOf(5, 200));
  h.Step();  // the prompt and the first token
  size_t before = 1;
  for (int i = 0; i < 10; ++i) {
    const model::StepPlan plan = h.Step();
    const size_t now = h.received(1).answers[0].size();
    EXPECT_EQ(plan.num_rows(), plan.num_samples());
    EXPECT_EQ(now - before, plan.num_rows());
    before = now;
  }
  EXPECT_GE(before, 80);
}

TEST(SpeculationTest, RightAndWrongDraftsGiveTheSameAnswer) {
  for (const int percent : {0, 20, 50, 80, 100}) {
    Harness h(WithDrafts(percent));
    const RequestId a = h.Add(RequestOf(5, 100)), b = h.Add(RequestOf(9, 60));
    h.RunToEnd();
    ExpectUndisturbed(h, a);
    ExpectUndisturbed(h, b);
    EXPECT_GT(h.metrics().draft_tokens.load(), 0u);
    EXPECT_EQ(h.metrics().accepted_draft_tokens.load() > 0, percent > 0);
    EXPECT_EQ(h.metrics().generated_tokens.load(), 160u);
  }
}

// Proposes drafts only for prompts of one length.
class OneSidedDrafter : public OracleDrafter {
 public:
  explicit OneSidedDrafter(size_t prompt) : OracleDrafter(kVocab, 100), prompt_(prompt) {}
  void Propose(const Sequence& s, int most, std::vector<int32_t>& drafts) override {
    drafts.clear();
    if (s.request->request.prompt.size() == prompt_) OracleDrafter::Propose(s, most, drafts);
  }

 private:
  const size_t prompt_;
};

TEST(SpeculationTest, DecodesOfOneTokenComeFirst) {
  EngineOptions options = WithDrafts(100);
  options.drafter = std::make_shared<OneSidedDrafter>(5);
  Harness h(options);
  const RequestId drafted = h.Add(RequestOf(5, 60)), plain = h.Add(RequestOf(6, 60));
  int mixed = 0;
  while (!h.scheduler().idle()) {
    const model::StepPlan plan = h.Step();
    if (plan.num_seqs() < 2 || plan.num_rows() == 2) continue;
    const int first = plan.query_begin[1] - plan.query_begin[0];
    const int second = plan.query_begin[2] - plan.query_begin[1];
    if (first > 1 && second > 1) continue;  // prompts
    EXPECT_EQ(first, 1);
    ++mixed;
  }
  EXPECT_GT(mixed, 3);
  ExpectUndisturbed(h, drafted);
  ExpectUndisturbed(h, plain);
}

TEST(SpeculationTest, AnAnswerEndsWithinItsDrafts) {
  Harness free(WithDrafts(100));
  const RequestId whole = free.Add(RequestOf(5, 30));
  free.RunToEnd();
  const std::vector<int32_t> answer = free.received(whole).answers[0];
  for (size_t end = 0; end < answer.size(); ++end) {
    Harness h(WithDrafts(100));
    Request request = RequestOf(5, 30);
    request.stop_ids = {answer[end]};
    const RequestId stopped = h.Add(request);
    const RequestId cut = h.Add(RequestOf(5, static_cast<int>(end) + 1));
    h.RunToEnd();
    ExpectUndisturbed(h, stopped);
    EXPECT_EQ(h.received(stopped).finish[0], FinishReason::kStop);
    ExpectUndisturbed(h, cut);
    EXPECT_THAT(h.received(cut).answers[0], SizeIs(end + 1));
  }
}

TEST(SpeculationTest, PenaltiesMasksAndScoresSeeTheDraftsBefore) {
  Harness h(WithDrafts(80));
  Request request = RequestOf(6, 60);
  request.sampling.repetition_penalty = 1.3f;
  request.sampling.frequency_penalty = 0.5f;
  request.sampling.num_logprobs = 2;
  request.stop_ids = {3, 8, 20, 33, 41};
  request.min_tokens = 20;
  for (int32_t i = 0; i + 2 < kVocab; i += 2) request.barred.push_back({i, i + 1, i + 2});
  for (int32_t i = 1; i + 1 < kVocab; i += 3) request.barred.push_back({i, i + 1});
  request.barred.push_back({5});
  const RequestId id = h.Add(request);
  h.RunToEnd();
  ExpectUndisturbed(h, id);
  EXPECT_GT(h.metrics().accepted_draft_tokens.load(), 0u);
}

TEST(SpeculationTest, NoBlockIsHeldForDraftsBetweenSteps) {
  EngineOptions options = WithDrafts(0);
  options.block_size = 2;
  Harness h(options);
  h.Add(RequestOf(4, 100));
  for (int i = 0; i < 20; ++i) {
    h.Step();
    const int tokens = 4 + static_cast<int>(h.received(1).answers[0].size());
    EXPECT_LE(h.scheduler().pool().num_used(), (tokens + 1) / 2);
  }
}

TEST(SpeculationTest, DraftsTakeNoBlocksOfOthers) {
  EngineOptions options = WithDrafts(100);
  options.num_blocks = 12;  // of 4 tokens
  Harness h(options);
  const RequestId a = h.Add(RequestOf(8, 16)), b = h.Add(RequestOf(7, 16));
  h.RunToEnd();
  ExpectUndisturbed(h, a);
  ExpectUndisturbed(h, b);
  EXPECT_EQ(h.metrics().preemptions.load(), 0u);
}

// If a token costs as much as everything else in a step, most drafts have to be right to pay.
TEST(SpeculationTest, DraftsThatDoNotPayAreNotAskedFor) {
  const auto by_tokens = [](const model::StepPlan& plan) {
    return absl::Milliseconds(1) + plan.num_rows() * absl::Milliseconds(10);
  };
  const auto drafter = std::make_shared<OracleDrafter>(kVocab, 5);
  EngineOptions options = WithDrafts(0);
  options.drafter = drafter;
  options.target_step = absl::Seconds(10);
  Harness expensive(options, by_tokens);
  expensive.Add(RequestOf(5, 300));
  expensive.RunToEnd();
  EXPECT_LT(expensive.tokens(), 320 + 5);
  EXPECT_LT(drafter->num_asked(), 20);

  options.drafter = std::make_shared<OracleDrafter>(kVocab, 95);
  Harness cheap(options, [](const model::StepPlan& plan) {
    return absl::Milliseconds(50) + plan.num_rows() * absl::Milliseconds(1);
  });
  cheap.Add(RequestOf(5, 300));
  cheap.RunToEnd();
  EXPECT_LT(cheap.steps(), 100);
}

// Their number is then that of the tokens alone, whatever a step costs.
TEST(SpeculationTest, DraftsThatDoNotPayAreCheckedIfAlwaysAskedFor) {
  const auto checked = [](absl::Duration token, int percent) {
    EngineOptions options = WithDrafts(percent);
    options.always_drafts = true;
    options.target_step = absl::Milliseconds(20);
    Harness h(options, [token](const model::StepPlan& plan) {
      return absl::Milliseconds(1) + plan.num_rows() * token;
    });
    const RequestId id = h.Add(RequestOf(5, 300));
    h.RunToEnd();
    ExpectUndisturbed(h, id);
    return h.metrics().draft_tokens.load();
  };
  for (const int percent : {5, 95}) {
    const uint64_t expensive = checked(absl::Milliseconds(30), percent);
    EXPECT_EQ(expensive, checked(absl::Microseconds(1), percent));
    EXPECT_GE(expensive, 250u);
  }
}

TEST(SpeculationTest, DraftsDoNotDelayATenantWithADeficit) {
  EngineOptions options = WithDrafts(100);
  options.max_batch_tokens = 64;
  options.max_prefill_chunk = 8;
  Harness h(options);
  Request heavy = RequestOf(40, 150), light = RequestOf(60, 1);
  heavy.tenant = "heavy";
  light.tenant = "light";
  h.Add(heavy);
  while (h.received(1).answers[0].empty()) h.Step();
  EXPECT_GT(h.Step().num_rows(), 1);  // drafts
  const RequestId id = h.Add(light);
  while (h.received(id).answers[0].empty()) {
    const model::StepPlan plan = h.Step();
    EXPECT_EQ(plan.query_begin[1], 1);  // the heavy one comes first and has no drafts
  }
  EXPECT_GT(h.Step().num_rows(), 1);  // drafts again
}

TEST(SpeculationTest, AStepIsNotMadeLongerThanItMayBe) {
  EngineOptions options = WithDrafts(100);
  options.target_step = absl::Milliseconds(20);
  Harness h(options, [](const model::StepPlan& plan) {
    return absl::Milliseconds(15) + plan.num_rows() * absl::Milliseconds(1);
  });
  h.Add(RequestOf(2, 200));
  while (!h.scheduler().idle()) {
    const model::StepPlan plan = h.Step();
    if (h.steps() > 10) {
      EXPECT_LE(plan.num_rows(), 5);
    }
  }
}

TEST(SpeculationTest, DraftsThatSeemedNotToPayAreTriedAgain) {
  // Tokens are expensive during prefill, as beside a busy neighbour, and cheap from then on.
  absl::Duration token = absl::Milliseconds(30);
  Harness h(WithDrafts(100), [&token](const model::StepPlan& plan) {
    return absl::Milliseconds(20) + (plan.num_rows() - 1) * token;
  });
  const RequestId id = h.Add(RequestOf(60, 900));
  while (h.received(id).answers[0].empty()) h.Step();
  token = absl::Microseconds(100);
  for (int i = 0; i < 50; ++i) h.Step();
  EXPECT_LT(h.metrics().draft_tokens.load(), 20u) << "they do not seem to pay";
  h.RunToEnd();
  ExpectUndisturbed(h, id);
  EXPECT_GT(h.metrics().draft_tokens.load(), 200u);
}

}  // namespace
}  // namespace continuo::engine
