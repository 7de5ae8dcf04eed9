// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/worker/text/stop_reference.h"
#include "tests/worker/text/test_files.h"

namespace continuo::text {
namespace {

using testing::OpenTestModel;

class DetokenizerTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Encode(std::string_view text) { return model_->Encode(text, false).value(); }

  const std::unique_ptr<TextModel> model_ = OpenTestModel("byte_level");
};

TEST_F(DetokenizerTest, ACharacterComesWithTheTokenThatCompletesIt) {
  const std::vector<int32_t> ids = Encode("😀!");  // two bytes, two bytes, "!"
  ASSERT_EQ(ids.size(), 3);
  Detokenizer detokenizer(model_.get(), {}, false);
  EXPECT_EQ(detokenizer.Push(ids[0], true).text, "");
  EXPECT_EQ(detokenizer.Push(ids[1], true).text, "😀");
  EXPECT_EQ(detokenizer.Push(ids[2], true).text, "!");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(DetokenizerTest, AtALimitHalfACharacterBecomesOneReplacementAfterTheHeldBackText) {
  Detokenizer detokenizer(model_.get(), {"hello"}, false);
  EXPECT_EQ(detokenizer.Push(Encode("hell")[0], true).text, "");
  EXPECT_EQ(detokenizer.Push(Encode("😀")[0], true).text, "");
  EXPECT_EQ(detokenizer.Flush(), "hell\xEF\xBF\xBD");
}

TEST_F(DetokenizerTest, SpecialTokensAndIdsThatNameNoTokenHaveNoText) {
  Detokenizer detokenizer(model_.get(), {}, false);
  EXPECT_EQ(detokenizer.Push(testing::IdOf(*model_, "<|end|>"), true).text, "");
  EXPECT_EQ(detokenizer.Push(model_->vocab_size(), true).text, "");
  EXPECT_EQ(detokenizer.Push(-1, true).text, "");
  EXPECT_EQ(detokenizer.Push(Encode("hello")[0], true).text, "hello");
}

TEST_F(DetokenizerTest, AStopStringEndsInTheMiddleOfATokenAndTheRestIsGone) {
  Detokenizer detokenizer(model_.get(), {"ell"}, false);
  const Detokenizer::Piece piece = detokenizer.Push(Encode("hello")[0], true);
  EXPECT_EQ(piece.text, "h");
  EXPECT_EQ(piece.matched_stop, 0);
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST_F(DetokenizerTest, AStopStringMayBeHalfATokenOfBytes) {
  Detokenizer detokenizer(model_.get(), {"😀"}, true);
  const std::vector<int32_t> ids = Encode("😀");
  EXPECT_EQ(detokenizer.Push(ids[0], true).matched_stop, -1);
  const Detokenizer::Piece piece = detokenizer.Push(ids[1], true);
  EXPECT_EQ(piece.matched_stop, 0);
  EXPECT_EQ(piece.text, "😀");
}

// Returns all bytes so far as text, without half a character at the end.
std::string WholeCharacters(const std::string& bytes) {
  Utf8Assembler assembler;
  std::string text;
  assembler.Push(bytes, &text);
  return text;
}

TEST_F(DetokenizerTest, RandomTokensGiveWhatTheReferenceGivesHoweverTheyAreGrouped) {
  std::mt19937 random(1);
  std::vector<int32_t> alphabet = Encode("hello world é😀!ab");
  for (const int32_t extra : {0xE2, 0x98, 0xFF, 0x80, 0xED}) alphabet.push_back(extra);  // bytes
  alphabet.push_back(testing::IdOf(*model_, "<|end|>"));
  const std::vector<std::string> stop_pool = {
      "l", "lo w", "é", "😀!", "hello hello", "\xEF\xBF\xBD", "ab", "aa", "ba", " ", "!!"};
  int num_stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = random() % 4; n > 0; --n)
      stops.push_back(stop_pool[random() % stop_pool.size()]);
    const bool include_stop = random() % 2 == 0;
    const int min_tokens = random() % 5;
    Detokenizer detokenizer(model_.get(), stops, include_stop);
    testing::StopReference reference(stops, include_stop);
    std::vector<int32_t> ids;
    std::string bytes, seen, out;
    int stop = -1;
    while (ids.size() < 20 && stop < 0) {
      ids.push_back(alphabet[random() % alphabet.size()]);
      bytes += model_->TokenBytes(ids.back());
      const std::string whole = WholeCharacters(bytes);
      const bool active = static_cast<int>(ids.size()) > min_tokens;
      const int expected = reference.Push(whole.substr(seen.size()), active);
      seen = whole;

      Detokenizer copy = detokenizer;  // a copy goes on where its original was
      const Detokenizer::Piece piece = copy.Push(ids.back(), active);
      EXPECT_EQ(detokenizer.Push(ids.back(), active).text, piece.text);
      if (random() % 2 == 0) detokenizer = copy;
      out += piece.text;
      stop = piece.matched_stop;
      ASSERT_EQ(stop, expected);
      ASSERT_EQ(out, reference.released());
    }
    if (stop >= 0) {
      ++num_stopped;
      continue;
    }
    out += detokenizer.Flush();
    ASSERT_EQ(out, model_->Decode(ids, false).value());
  }
  EXPECT_GT(num_stopped, 1000);
}

}  // namespace
}  // namespace continuo::text
