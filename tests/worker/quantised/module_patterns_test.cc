// SPDX-License-Identifier: Apache-2.0
#include "services/worker/quantised/module_patterns.h"

#include <gmock/gmock.h>

namespace continuo::quantised {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Kind = ModulePatterns::Kind;
using Match = ModulePatterns::Match;

ModulePatterns Make(Kind kind, const json& list) {
  auto patterns = ModulePatterns::Make(kind, "list", list);
  EXPECT_TRUE(patterns.ok()) << patterns.status();
  return *std::move(patterns);
}

std::string ErrorOf(Kind kind, const json& list) {
  return std::string(ModulePatterns::Make(kind, "list", list).status().message());
}

TEST(ModulePatternsTest, TargetsAreNamesExpressionsAndClasses) {
  const ModulePatterns patterns = Make(Kind::kTargets, {"Linear", "re:.*mlp.*", "model.a.mlp"});
  EXPECT_EQ(patterns.Find("model.a.mlp"), Match::kName);
  EXPECT_EQ(patterns.Find("model.b.mlp.up_proj"), Match::kExpression);
  EXPECT_EQ(patterns.Find("model.b.self_attn"), Match::kClass);
  EXPECT_EQ(patterns.Find("model.embed_tokens"), Match::kNone);
  EXPECT_EQ(Make(Kind::kTargets, {"Embedding"}).Find("model.embed_tokens"), Match::kClass);
  // An expression matches from the beginning on, a name as a whole.
  const ModulePatterns some = Make(Kind::kTargets, {"re:mlp", "lm_head"});
  EXPECT_EQ(some.Find("model.mlp"), Match::kNone);
  EXPECT_EQ(some.Find("mlp.up"), Match::kExpression);
  EXPECT_EQ(some.Find("model.lm_head"), Match::kNone);
}

TEST(ModulePatternsTest, PartsAreWholeBetweenDots) {
  const ModulePatterns patterns =
      Make(Kind::kParts, {"lm_head", "mlp.gate", "model.layers.1", "model.layers.*.self_attn"});
  for (const char* const module :
       {"lm_head", "model.layers.7.mlp.gate", "model.layers.1.mlp.up_proj",
        "model.layers.22.self_attn.q_proj"}) {
    EXPECT_NE(patterns.Find(module), Match::kNone) << module;
  }
  for (const char* const module : {"lm_head2", "model.layers.7.mlp.gate_proj",
                                   "model.layers.10.mlp", "model.layers.22.self_attn2", "", "."}) {
    EXPECT_EQ(patterns.Find(module), Match::kNone) << module;
  }
}

// Looking up all parts of these names would take days.
TEST(ModulePatternsTest, NamesOfManyPartsTakeLittleWork) {
  std::string module;
  for (int i = 0; i < 100000; ++i) module += "a.";
  std::string longest = "b";
  for (int i = 0; i < 31; ++i) longest += ".b";
  EXPECT_EQ(Make(Kind::kParts, json::array()).Find(module), Match::kNone);
  const ModulePatterns patterns = Make(Kind::kParts, {"lm_head", longest, std::string(1000, 'c')});
  EXPECT_EQ(patterns.Find(module), Match::kNone);
  EXPECT_EQ(patterns.Find(module + "lm_head." + module), Match::kName);
  EXPECT_EQ(patterns.Find(module + longest), Match::kName);
  EXPECT_EQ(patterns.Find(module + longest + ".b"), Match::kName);
  EXPECT_THAT(ErrorOf(Kind::kParts, {longest + ".b"}), HasSubstr("more than 31 dots"));
}

TEST(ModulePatternsTest, AbsentListsMatchNothing) {
  EXPECT_EQ(Make(Kind::kParts, nullptr).Find("lm_head"), Match::kNone);
  EXPECT_EQ(Make(Kind::kTargets, json::array()).Find("lm_head"), Match::kNone);
  EXPECT_EQ(ModulePatterns().Find("lm_head"), Match::kNone);
}

TEST(ModulePatternsTest, OtherListsAreRefused) {
  EXPECT_THAT(ErrorOf(Kind::kParts, "lm_head"), HasSubstr("list: it must be a list"));
  EXPECT_THAT(ErrorOf(Kind::kParts, {1}), HasSubstr("list: it must be a list"));
  EXPECT_THAT(ErrorOf(Kind::kTargets, {"re:^(?!.*head).*"}), HasSubstr("(?!.*head)"));
  EXPECT_THAT(ErrorOf(Kind::kTargets, {"re:("}), HasSubstr("not known"));
  EXPECT_THAT(ErrorOf(Kind::kTargets, json(std::vector<std::string>(300, "re:a"))),
              HasSubstr("more than 256"));
  EXPECT_THAT(ErrorOf(Kind::kTargets, {"re:((((a{999}){999}){999}){999})"}),
              HasSubstr("not known"));
}

}  // namespace
}  // namespace continuo::quantised
