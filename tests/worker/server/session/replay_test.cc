// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/replay.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "services/protocol/error.h"
#include "tests/worker/server/session/session_harness.h"
#include "tests/worker/text/stop_reference.h"

namespace continuo::server {
namespace {

using testing::kEos;

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest()
      : text_(testing::OpenTestModel("byte_level")), model_(testing::MakeServedModel(text_.get())) {
    rules_.eos_ids = {kEos};
    rules_.max_tokens = 6;
  }
  void Had(std::initializer_list<uint32_t> ids, int index = 0, bool finished = false) {
    v1::Delta& delta = *received_.add_deltas();
    delta.set_index(index);
    for (const uint32_t id : ids) delta.add_token_ids(id);
    if (finished) delta.set_finish_reason(v1::FINISH_REASON_STOP);
  }
  absl::StatusOr<Replay> Run(bool exact = true) {
    return ReplayReceived(received_, 2, /*prompt_tokens=*/3, exact, model_, rules_);
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  StopRules rules_;
  v1::GenerateResponse received_;
};

TEST_F(ReplayTest, DeltasOfASequenceAreJoined) {
  Had({'a'});
  Had({'x'}, 1);
  Had({'b'});
  const auto replay = Run();
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay->received[0].tokens, (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(replay->received[1].tokens, (std::vector<int32_t>{'x'}));
  EXPECT_FALSE(replay->endings[0].has_value());
  EXPECT_EQ(replay->num_tokens(), 3);
}

TEST_F(ReplayTest, AReceivedFinishIsLeftAlone) {
  Had({'a', kEos}, 0, true);
  const auto replay = Run();
  ASSERT_TRUE(replay.ok());
  EXPECT_TRUE(replay->received[0].finished);
  EXPECT_FALSE(replay->endings[0].has_value());
  EXPECT_FALSE(replay->all_finished());
}

TEST_F(ReplayTest, AnUnknownFinishReasonStillEndsTheSequence) {
  Had({'a'});
  received_.mutable_deltas(0)->set_finish_reason(static_cast<v1::FinishReason>(77));
  EXPECT_TRUE(Run()->received[0].finished);
}

TEST_F(ReplayTest, EndOfSequenceWithoutItsFinishFlushesTheHeldBackText) {
  rules_.strings = {"bc"};
  Had({'a', 'b', kEos});
  const auto replay = Run();
  ASSERT_TRUE(replay->endings[0].has_value());
  EXPECT_EQ(replay->endings[0]->finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(testing::TextOf(*replay->endings[0]), "b");
}

TEST_F(ReplayTest, MaxTokensWithoutItsFinishFlushesTheHeldBackText) {
  rules_.strings = {"fgh"};
  Had({'a', 'b', 'c', 'd', 'e', 'f'});
  const auto replay = Run();
  ASSERT_TRUE(replay->endings[0].has_value());
  EXPECT_EQ(replay->endings[0]->finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(testing::TextOf(*replay->endings[0]), "f");
}

TEST_F(ReplayTest, AStopStringWithoutItsFinishIsNamed) {
  rules_.strings = {"zz", "bc"};
  Had({'a', 'b', 'c'});
  const auto replay = Run();
  ASSERT_TRUE(replay->endings[0].has_value());
  EXPECT_EQ(replay->endings[0]->matched_string, 1);
  EXPECT_EQ(testing::TextOf(*replay->endings[0]), "");
}

TEST_F(ReplayTest, AStopStringThatIsPartOfTheTextWasHeldBack) {
  rules_.strings = {"zz", "bc"};
  rules_.include_stop = true;
  Had({'a', 'b', 'c'});
  auto replay = Run();
  ASSERT_TRUE(replay->endings[0].has_value());
  EXPECT_EQ(testing::TextOf(*replay->endings[0]), "bc");

  // With the text that ids without an end give, it is the text of the undisturbed run.
  AnswerSequence undisturbed(&model_, &rules_), unfinished(&model_, &rules_);
  std::string whole, before;
  for (const int32_t id : {'a', 'b', 'c'}) whole += testing::TextOf(undisturbed.Push(id));
  for (const int32_t id : {'a', 'b'}) before += testing::TextOf(unfinished.Push(id));
  EXPECT_EQ(before + testing::TextOf(*replay->endings[0]), whole);
}

TEST_F(ReplayTest, WhatAnotherStopStringHeldBackBeforeTheOneThatWasMetIsSent) {
  rules_.strings = {"abcd", "bc"};
  Had({'a', 'b', 'c'});
  EXPECT_EQ(testing::TextOf(*Run()->endings[0]), "a");
  rules_.include_stop = true;
  EXPECT_EQ(testing::TextOf(*Run()->endings[0]), "abc");
}

// A worker that holds back whatever may be, or is, part of a stop string has delivered the rest.
TEST_F(ReplayTest, TextDeliveredWithoutTheEndAndItsTextAreThatOfTheUndisturbedRun) {
  std::mt19937 rng(5);
  const auto pick = [&rng](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(rng);
  };
  const auto letters = [&](int length) {
    std::string text;
    while (length-- > 0) text += static_cast<char>('a' + pick(0, 2));
    return text;
  };
  rules_.max_tokens = 40;
  int num_ends = 0, num_held = 0;
  for (int round = 0; round < 3000; ++round) {
    received_.Clear();
    rules_.strings.clear();
    std::vector<std::string> unmet;  // the same, with a byte that no text has
    for (int i = pick(1, 4); i > 0; --i) rules_.strings.push_back(letters(pick(1, 7)));
    for (const std::string& stop : rules_.strings) unmet.push_back(stop + '\xff');
    rules_.include_stop = pick(0, 1) == 1;
    testing::StopReference undisturbed(rules_.strings, rules_.include_stop),
        unfinished(unmet, false);
    for (const char c : letters(30)) {
      Had({static_cast<uint32_t>(c)});
      unfinished.Push({&c, 1}, true);
      if (undisturbed.Push({&c, 1}, true) >= 0) break;
    }
    const auto replay = Run();
    ASSERT_TRUE(replay.ok()) << replay.status();
    if (!replay->endings[0].has_value()) continue;
    ++num_ends;
    const std::string text = testing::TextOf(*replay->endings[0]);
    ASSERT_EQ(unfinished.released() + text, undisturbed.text())
        << absl::StrJoin(rules_.strings, " ");
    if (!rules_.include_stop && !text.empty()) ++num_held;
  }
  EXPECT_GT(num_ends, 1000);
  EXPECT_GT(num_held, 50);
}

TEST_F(ReplayTest, IdsThatCannotHaveBeenGivenAreRefused) {
  const auto refused = [&](const char* field) {
    const absl::Status status = Run().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(protocol::FieldOf(status), field) << status;
    received_.Clear();
  };
  Had({272});
  refused("continuation.received.deltas[0].token_ids");
  Had({'a'}, 2);
  refused("continuation.received.deltas[0].index");
  Had({'a'}, 0, true);
  Had({'b'});
  refused("continuation.received.deltas[1].token_ids");
  Had({kEos, 'b'});
  refused("continuation.received.deltas");
  Had({'a', 'b', 'c', 'd', 'e', 'f', 'g'});
  refused("continuation.received.deltas");
  rules_.strings = {"bc"};
  Had({'b', 'c', 'd'});
  refused("continuation.received.deltas");
  rules_.min_tokens = 2;
  Had({'a', kEos});
  refused("continuation.received.deltas");
  for (int i = 0; i < 3; ++i) received_.add_prompt_logprobs();
  refused("continuation.received.prompt_logprobs");
  for (int i = 0; i < 4; ++i) received_.add_prompt_tokens();
  refused("continuation.received.prompt_tokens");
}

TEST_F(ReplayTest, OfAnotherFingerprintOnlyTheVocabularyIsRefused) {
  Had({272});
  EXPECT_FALSE(Run(/*exact=*/false).ok());
  received_.Clear();

  rules_.strings = {"bc"};
  Had({'a', kEos, 'b', 'c', 'd'});
  auto replay = Run(/*exact=*/false);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_FALSE(replay->endings[0].has_value()) << "ends before the last id are ignored";
  EXPECT_EQ(replay->sequences[0].num_tokens(), 5);

  Had({'e', 'f', 'g', 'h'});
  replay = Run(/*exact=*/false);
  ASSERT_TRUE(replay->endings[0].has_value()) << "a limit already passed ends";
  EXPECT_EQ(replay->endings[0]->finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(replay->num_tokens(), 9);
  received_.Clear();

  Had({'a', kEos});
  replay = Run(/*exact=*/false);
  EXPECT_EQ(replay->endings[0]->finish, v1::FINISH_REASON_STOP);
}

TEST_F(ReplayTest, PromptLogprobsAndTokensAreCounted) {
  received_.add_prompt_logprobs();
  received_.add_prompt_tokens();
  received_.add_prompt_tokens();
  EXPECT_EQ(Run()->num_prompt_logprobs, 1);
  EXPECT_EQ(Run()->num_prompt_tokens, 2);
}

}  // namespace
}  // namespace continuo::server
