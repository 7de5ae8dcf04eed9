// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/grammar/grammar_compiler.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/worker/text/grammar/random_answer.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {
namespace {

using text::GrammarCompiler;

class GrammarCompilerTest : public ::testing::Test {
 protected:
  const std::unique_ptr<text::TextModel> model_ = OpenTestModel("byte_level");
};

TEST_F(GrammarCompilerTest, TheSameSourceIsCompiledOnce) {
  GrammarCompiler compiler(model_.get());
  const auto first = compiler.Compile(RegexSource("a+"));
  const auto second = compiler.Compile(RegexSource("a+"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(compiler.counters().compiles, 1u);
  EXPECT_EQ(compiler.counters().hits, 1u);
  EXPECT_EQ(compiler.counters().refusals, 0u);
}

TEST_F(GrammarCompilerTest, KindsAndOptionsTellSourcesApart) {
  GrammarCompiler compiler(model_.get());
  EXPECT_TRUE(compiler.Compile(RegexSource("start: \"a\"")).ok());
  EXPECT_TRUE(compiler.Compile(LarkSource("start: \"a\"")).ok());
  EXPECT_TRUE(compiler.Compile(ChoiceSource({"ab", "c"})).ok());
  EXPECT_TRUE(compiler.Compile(ChoiceSource({"a", "bc"})).ok());
  EXPECT_TRUE(compiler.Compile(ChoiceSource({"abc"})).ok());
  EXPECT_EQ(compiler.counters().compiles, 5u);
}

TEST_F(GrammarCompilerTest, RefusalsAreNotKept) {
  GrammarCompiler compiler(model_.get());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(compiler.Compile(RegexSource("(")).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(compiler.counters().compiles, 2u);
  EXPECT_EQ(compiler.counters().refusals, 2u);
}

TEST_F(GrammarCompilerTest, TheOneNotUsedForLongestIsForgotten) {
  GrammarCompiler compiler(model_.get(), {.max_grammars = 2});
  const auto compile = [&](const char* regex) {
    ASSERT_TRUE(compiler.Compile(RegexSource(regex)).ok());
  };
  compile("a");
  compile("b");
  compile("a");
  compile("c");
  compile("a");
  EXPECT_EQ(compiler.counters().compiles, 3u);
  compile("b");
  EXPECT_EQ(compiler.counters().compiles, 4u);
}

TEST_F(GrammarCompilerTest, SourcesAreBoundedTogether) {
  GrammarCompiler compiler(model_.get(), {.max_source_bytes = 30});
  const auto kept = compiler.Compile(RegexSource("aaaaaaaaaaaaaaaaaaaa"));
  ASSERT_TRUE(compiler.Compile(RegexSource("bbbbbbbbbbbbbbbbbbbb")).ok());
  ASSERT_TRUE(compiler.Compile(RegexSource("aaaaaaaaaaaaaaaaaaaa")).ok());
  EXPECT_EQ(compiler.counters().compiles, 3u);
  ASSERT_TRUE(compiler.Compile(RegexSource(std::string(40, 'c'))).ok());
  EXPECT_EQ(compiler.counters().compiles, 4u);
  EXPECT_TRUE((*kept)->NewMatcher().ok());
}

TEST_F(GrammarCompilerTest, ThreadsMayCompileAndMatchAtOnce) {
  GrammarCompiler compiler(model_.get(), {.max_grammars = 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 20; ++i) {
        const auto grammar =
            compiler.Compile(RegexSource("[ab]{" + std::to_string(random() % 5) + "}"));
        ASSERT_TRUE(grammar.ok());
        const auto matcher = *(*grammar)->NewMatcher();
        EXPECT_TRUE(AnswerRandomly(*model_, *matcher, random, 10).is_finished);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto counters = compiler.counters();
  EXPECT_EQ(counters.compiles + counters.hits, 80u);
}

}  // namespace
}  // namespace continuo::testing
