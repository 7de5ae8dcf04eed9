// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/draft/model_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/testing/fake_executor.h"
#include "tests/testing/manual_clock.h"
#include "tests/worker/engine/schedule/harness.h"

namespace continuo::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kVocab = 50;

// A drafter with a FakeExecutor as its draft model, which the test can reach.
struct Fixture {
  // Steps of the draft model take `step`, which the test may change.
  explicit Fixture(ModelDrafterOptions options = {}, const absl::Duration* step = nullptr) {
    if (options.num_blocks == 0) options.num_blocks = 40;
    if (options.vocab_size == 0) options.vocab_size = kVocab;
    if (options.target_vocab_size == 0) options.target_vocab_size = kVocab;
    if (options.context_length == 0) options.context_length = 2000;
    if (options.max_batch_tokens == 0) options.max_batch_tokens = 64;
    options.block_size = 4;
    auto made = std::make_unique<FakeExecutor>(
        FakeExecutorOptions{.num_blocks = options.num_blocks,
                            .block_size = options.block_size,
                            .vocab_size = options.vocab_size,
                            .clock = &clock,
                            .cost = [step](const model::StepPlan&) {
                              return step == nullptr ? absl::ZeroDuration() : *step;
                            }});
    executor = made.get();
    drafter = std::make_shared<ModelDrafter>(options, std::move(made), &clock);
  }
  std::vector<int32_t> Drafts(const Sequence& s, int most) {
    const DraftAsk ask = {&s, most};
    drafter->Prepare(std::span(&ask, 1));
    std::vector<int32_t> drafts;
    drafter->Propose(s, most, drafts);
    return drafts;
  }

  ManualClock clock;
  FakeExecutor* executor = nullptr;
  std::shared_ptr<ModelDrafter> drafter;
};

struct Generation {
  explicit Generation(model::SequenceId id, int prompt = 9, int num_tokens = 1) {
    for (int i = 0; i < prompt; ++i) {
      live.request.prompt.push_back(static_cast<int32_t>(id * 5 + i * 3) % kVocab);
    }
    live.request.max_tokens = 500;
    live.request.sampling.seed = id;
    s.id = id;
    s.request = &live;
    Grow(num_tokens);
  }
  // Adds the tokens of a target model that agrees with the draft model.
  void Grow(int num_tokens) {
    for (const int32_t token : Next(num_tokens)) s.answer.push_back(token);
  }
  std::vector<int32_t> Next(int count) const {
    Request request = live.request;
    request.max_tokens = static_cast<int>(s.answer.size()) + count;
    request.received = {{.tokens = s.answer}};
    std::vector<int32_t> answer = FakeAnswer(request, 0, kVocab);
    answer.erase(answer.begin(), answer.begin() + static_cast<int>(s.answer.size()));
    return answer;
  }

  LiveRequest live;
  Sequence s;
};

TEST(ModelDrafterTest, ProposesWhatItsModelSamplesWithTheSeedOfTheSequence) {
  Fixture f;
  Generation g(1);
  EXPECT_THAT(f.Drafts(g.s, 4), ElementsAreArray(g.Next(4)));
}

TEST(ModelDrafterTest, ComputesOnlyNewTokensHoweverManyDraftsWereRight) {
  Fixture f;
  Generation g(1, /*prompt=*/20);
  f.Drafts(g.s, 4);
  for (const int right : {0, 1, 3, 4}) {
    g.Grow(right);
    // The last token is not the one that the draft model would sample.
    g.s.answer.push_back((g.Next(1)[0] + 1) % kVocab);
    const int64_t before = f.executor->num_rows();
    EXPECT_THAT(f.Drafts(g.s, 4), ElementsAreArray(g.Next(4)));
    // It computes the last token, those before it that were no drafts, and three drafts.
    EXPECT_LE(f.executor->num_rows() - before, 5) << right;
  }
}

TEST(ModelDrafterTest, AStepGuessesForAllSequences) {
  Fixture f;
  Generation a(1), b(2), c(3);
  const std::vector<DraftAsk> asks = {{&a.s, 4}, {&b.s, 2}, {&c.s, 1}};
  f.drafter->Prepare(asks);
  EXPECT_EQ(f.executor->num_steps(), 4);
  std::vector<int32_t> drafts;
  for (const DraftAsk& ask : asks) {
    f.drafter->Propose(*ask.sequence, 9, drafts);
    EXPECT_THAT(drafts, SizeIs(ask.most));
  }
  f.drafter->Propose(b.s, 9, drafts);
  EXPECT_THAT(drafts, ElementsAreArray(b.Next(2)));
}

TEST(ModelDrafterTest, ALongPromptIsComputedInChunksBeforeTheFirstDraft) {
  Fixture f({.max_batch_tokens = 16});
  Generation g(1, /*prompt=*/40);
  EXPECT_THAT(f.Drafts(g.s, 2), IsEmpty());
  EXPECT_THAT(f.Drafts(g.s, 2), IsEmpty());
  EXPECT_THAT(f.Drafts(g.s, 2), ElementsAreArray(g.Next(2)));
}

TEST(ModelDrafterTest, TheSequenceNotAskedForLongestMakesRoom) {
  Fixture f({.num_blocks = 8});  // 32 tokens
  Generation a(1, 12), b(2, 12), c(3, 12);
  EXPECT_THAT(f.Drafts(a.s, 2), SizeIs(2));
  EXPECT_THAT(f.Drafts(b.s, 2), SizeIs(2));
  EXPECT_THAT(f.Drafts(c.s, 2), ElementsAreArray(c.Next(2)));
  EXPECT_THAT(f.Drafts(b.s, 2), ElementsAreArray(b.Next(2)));
  EXPECT_THAT(f.Drafts(a.s, 2), ElementsAreArray(a.Next(2)));
  Generation longer(4, 40);
  EXPECT_THAT(f.Drafts(longer.s, 2), IsEmpty()) << "more than there is";
  EXPECT_THAT(f.Drafts(a.s, 2), ElementsAreArray(a.Next(2)));
  for (const model::SequenceId id : {1, 2, 3, 4}) f.drafter->Forget(id);
  EXPECT_EQ(f.drafter->num_free_blocks(), 8);
}

TEST(ModelDrafterTest, NothingBeyondTheContextOrTheVocabulary) {
  Fixture f({.context_length = 12});
  Generation g(1, /*prompt=*/9);  // and one token
  EXPECT_THAT(f.Drafts(g.s, 4), SizeIs(2));
  g.Grow(2);
  EXPECT_THAT(f.Drafts(g.s, 4), IsEmpty());

  Fixture small({.vocab_size = 10});
  EXPECT_THAT(small.Drafts(g.s, 4), IsEmpty()) << "the prompt has tokens that it does not know";
  Fixture large({.target_vocab_size = 1});
  for (const int32_t draft : large.Drafts(g.s, 8)) EXPECT_EQ(draft, 0);
}

TEST(ModelDrafterTest, AFailedExecutorIsNotAskedAgain) {
  std::vector<std::string> told;
  Fixture f({.on_lost = [&](const absl::Status& why) { told.push_back(why.ToString()); }});
  Generation g(1);
  f.executor->FailWith(absl::InternalError("lost"));
  EXPECT_THAT(f.Drafts(g.s, 4), IsEmpty());
  EXPECT_THAT(f.Drafts(g.s, 4), IsEmpty());
  EXPECT_THAT(told, ElementsAre("INTERNAL: lost"));
}

// A step of the target model takes 10 ms, one of the draft model takes `draft`.
int64_t DraftsChecked(absl::Duration draft) {
  Fixture f({.num_blocks = 400}, &draft);
  EXPECT_TRUE(f.drafter->Calibrate().ok());
  EngineOptions options;
  options.vocab_size = kVocab;
  options.drafter = f.drafter;
  Harness h(options);
  Request r;
  r.prompt = {1, 2, 3, 4, 5};
  r.max_tokens = 100;
  const RequestId a = h.Add(r), b = h.Add(r);
  h.RunToEnd();
  EXPECT_TRUE(h.status().ok()) << h.status();
  EXPECT_EQ(h.received(a).answers[0], h.Expected(a));
  EXPECT_EQ(h.received(b).answers[0], h.Expected(b));
  EXPECT_EQ(f.drafter->num_free_blocks(), 400) << "whoever has ended is forgotten";
  return static_cast<int64_t>(h.metrics().draft_tokens.load());
}

TEST(ModelDrafterTest, IsAskedOnlyIfThatPays) {
  EXPECT_GT(DraftsChecked(absl::Milliseconds(1)), 100);
  // All drafts are right in both cases, but here one takes longer than the step that it saves.
  EXPECT_LT(DraftsChecked(absl::Milliseconds(50)), 20);
}

TEST(ModelDrafterTest, IsAskedAgainIfItWasSlowOnce) {
  absl::Duration step = absl::Milliseconds(500);
  Fixture f({.num_blocks = 400}, &step);
  EXPECT_TRUE(f.drafter->Calibrate().ok());
  step = absl::Microseconds(100);
  EngineOptions options;
  options.vocab_size = kVocab;
  options.num_blocks = 400;
  options.drafter = f.drafter;
  Harness h(options);
  const RequestId id = h.Add(RequestOf({1, 2, 3, 4, 5}, 1500));
  h.RunToEnd();
  EXPECT_EQ(h.received(id).answers[0], h.Expected(id));
  EXPECT_GT(h.metrics().draft_tokens.load(), 100u);
}

}  // namespace
}  // namespace continuo::engine
