// SPDX-License-Identifier: Apache-2.0
// Thoughts and calls of tools, from ids to deltas.
#include <gmock/gmock.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/protocol/error.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/response_queue.h"
#include "services/worker/text/response/response_formats.h"
#include "tests/testing/text_files.h"
#include "tests/worker/server/session/session_harness.h"

namespace continuo::server {
namespace {

using ::testing::HasSubstr;
using testing::kEos;
using testing::MakeServedModel;
using testing::OpenTestModel;

constexpr int32_t kUser = 269, kAssistant = 270;  // special tokens of byte_level

std::vector<int32_t> Ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// Returns what was said, part by part.
std::string Line(const AnswerSequence::Said& said) {
  std::vector<std::string> lines;
  for (const AnswerSequence::Said::Part& part : said.parts()) {
    std::string& line = lines.emplace_back(
        absl::StrCat("text \"", part.text, "\" thought \"", part.reasoning, "\""));
    for (const v1::ToolCall& call : part.tool_calls) {
      absl::StrAppend(&line, " call ", call.index(), " ", call.id(), " ", call.name(), " ",
                      call.arguments());
    }
  }
  return absl::StrJoin(lines, "; ");
}

// An answer as a reader of deltas has it: what it says, in its order, whatever how many they are.
class Reading {
 public:
  void Take(const v1::GenerateResponse& response) {
    for (const v1::Delta& delta : response.deltas()) {
      auto call = delta.tool_calls().begin();
      if (call != delta.tool_calls().end() && call->id().empty()) text_ += (call++)->arguments();
      Add("thought", delta.reasoning());
      Add("text", delta.text());
      for (; call != delta.tool_calls().end(); ++call) {
        if (!call->id().empty()) absl::StrAppend(&text_, "\n", kind_ = call->name(), ": ");
        text_ += call->arguments();
      }
    }
  }
  const std::string& text() const { return text_; }

 private:
  void Add(const std::string& kind, const std::string& piece) {
    if (piece.empty()) return;
    if (std::exchange(kind_, kind) != kind) absl::StrAppend(&text_, "\n", kind, ": ");
    text_ += piece;
  }

  std::string kind_, text_;
};

class ToolCallsTest : public ::testing::Test {
 protected:
  ToolCallsTest() : text_(OpenTestModel("byte_level")), model_(MakeServedModel(text_.get())) {
    rules_.eos_ids = {kEos};
    rules_.max_tokens = 1000;
    format_.response_template = &hermes_.response_template;
    format_.calls = true;
    format_.request_id = "r";
  }

  // Returns what a sequence says of these ids; it goes on where they do not end it.
  AnswerSequence::Output Push(AnswerSequence& sequence, const std::vector<int32_t>& ids) {
    AnswerSequence::Output all;
    for (const int32_t id : ids) {
      AnswerSequence::Output output = sequence.Push(id);
      all.Append(output);
      all.finish = output.finish;
    }
    return all;
  }
  AnswerSequence::Output Whole(const std::vector<int32_t>& ids) {
    AnswerSequence sequence(&model_, &rules_, &format_);
    return Push(sequence, ids);
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  const text::ResponseFormat hermes_ = *text::NamedResponseFormat("hermes", "<think>");
  StopRules rules_;
  AnswerFormat format_;
};

std::vector<int32_t> Answer() {
  std::vector<int32_t> ids =
      Ids("<think>\nHm é</think>\n\nI ask.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "
          "\"stop\"}}"
          "</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>");
  ids.push_back(kEos);
  return ids;
}

TEST_F(ToolCallsTest, AnAnswerIsDividedAndItsCallsHaveIds) {
  const AnswerSequence::Output output = Whole(Answer());
  EXPECT_EQ(Line(output),
            absl::StrCat("text \"I ask.\" thought \"Hm é\" call 0 ", CallId("r", 0, 0),
                         " f {\"a\": \"stop\"} call 1 ", CallId("r", 0, 1), " g {}"));
  EXPECT_EQ(output.finish, v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_EQ(CallId("r", 0, 0).size(), 9u);
  EXPECT_NE(CallId("r", 0, 0), CallId("r", 1, 0));
  EXPECT_NE(CallId("r", 0, 0), CallId("s", 0, 0));

  AnswerSequence sequence(&model_, &rules_, &format_);
  Push(sequence, Answer());
  // From the token that completes "<think>" to the one that completes "</think>".
  EXPECT_EQ(sequence.num_reasoning_tokens(), static_cast<int>(Ids("\nHm é</think>").size()));
}

TEST_F(ToolCallsTest, OnlyAWholeCallIsAReasonToFinish) {
  std::vector<int32_t> cut = Ids("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"");
  AnswerSequence sequence(&model_, &rules_, &format_);
  AnswerSequence::Output output = Push(sequence, cut);
  const AnswerSequence::Output end = sequence.End(v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(end.finish, v1::FINISH_REASON_LENGTH);
  output.Append(end);
  EXPECT_THAT(Line(output), HasSubstr(" f {\"a\""));
  cut.push_back(kEos);
  EXPECT_EQ(Whole(cut).finish, v1::FINISH_REASON_STOP);
}

TEST_F(ToolCallsTest, ASingleCallEndsTheAnswer) {
  format_.single_call = true;
  rules_.min_tokens = 1000;
  const auto run = [&](std::string_view text) {
    AnswerSequence sequence(&model_, &rules_, &format_);
    AnswerSequence::Output all;
    for (const int32_t id : Ids(text)) {
      const AnswerSequence::Output output = sequence.Push(id);
      all.Append(output);
      all.finish = output.finish;
      if (sequence.finished()) break;
    }
    return std::pair(all, sequence.num_tokens());
  };
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}";
  const auto [said, num_tokens] = run("Hi " + call + "</tool_call>\n" + call + "</tool_call>Bye");
  EXPECT_EQ(Line(said),
            absl::StrCat("text \"Hi\" thought \"\" call 0 ", CallId("r", 0, 0), " f {\"a\": 1}"));
  EXPECT_EQ(said.finish, v1::FINISH_REASON_TOOL_CALLS);
  EXPECT_LE(num_tokens, static_cast<int>(("Hi " + call + "</tool_call>").size()));
  // A call that breaks off is no whole one, and what follows it is not lost.
  const auto [broken, _] =
      run("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ]. </tool_call>" + call +
          "</tool_call>" + call);
  EXPECT_EQ(Line(broken), absl::StrCat("text \"\" thought \"\" call 0 ", CallId("r", 0, 0),
                                       " f {\"a\": ; text \"].\" "
                                       "thought \"\" call 1 ",
                                       CallId("r", 0, 1), " f {\"a\": 1}"));
  EXPECT_EQ(broken.finish, v1::FINISH_REASON_TOOL_CALLS);
  // What is none, is text.
  EXPECT_EQ(run("<tool_call>no</tool_call> more").first.finish, v1::FINISH_REASON_UNSPECIFIED);
}

TEST_F(ToolCallsTest, WithoutAFormatAllIsText) {
  format_.response_template = nullptr;
  const AnswerSequence::Output output = Whole(Answer());
  EXPECT_THAT(testing::TextOf(output), HasSubstr("<think>\nHm é</think>"));
  EXPECT_EQ(output.finish, v1::FINISH_REASON_STOP);
}

TEST_F(ToolCallsTest, SpecialTokensStandWhereTheyCameAlsoInTextThatIsHeldBack) {
  const auto parsed = text::ResponseTemplate::Parse(
      R"({"fields": {"thinking": {"open": "<|user|>", "close": "<|assistant|>"}, "content": {}}})");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  format_.response_template = &*parsed;
  rules_.strings = {"abd", "cc"};
  EXPECT_EQ(Line(Whole({'x', 'a', kUser, 'b', kAssistant, 'c', kEos})),
            R"(text "xa" thought ""; text "c" thought "b")");
  // A stop string goes through special tokens, which fall away with its text.
  EXPECT_EQ(Line(Whole({'x', 'a', kUser, 'b', kAssistant, 'd'})), R"(text "x" thought "")");
  rules_.include_stop = true;
  EXPECT_EQ(Line(Whole({'x', 'a', kUser, 'b', kAssistant, 'd'})),
            R"(text "xa" thought ""; text "d" thought "b")");
}

// Told before the cut and told after it are together what an undisturbed run tells.
TEST_F(ToolCallsTest, AContinuationGoesOnAfterAnyId) {
  const std::vector<int32_t> ids = Answer();
  int num_ends = 0;
  for (const char* stop : {"", "stop", "\"st", "</tool_call>", "I ask.", "Hm"}) {
    for (const int kind : {0, 1, 2, 3}) {
      rules_.include_stop = kind % 2 == 1;
      format_.single_call = kind / 2 == 1;
      rules_.strings.clear();
      if (*stop != '\0') rules_.strings = {stop};
      // Holds back as much, and is never met.
      StopRules unmet = rules_;
      for (std::string& text : unmet.strings) text += '\xff';
      AnswerSequence undisturbed(&model_, &rules_, &format_);
      AnswerSequence::Output whole;
      size_t length = 0;
      while (!undisturbed.finished()) {
        AnswerSequence::Output output = undisturbed.Push(ids[length++]);
        whole.Append(output);
        whole.finish = output.finish;
      }
      for (size_t cut = 0; cut <= length; ++cut) {
        AnswerSequence before(&model_, &unmet, &format_);
        v1::GenerateResponse received;
        v1::Delta& delta = *received.add_deltas();
        AnswerSequence::Said said;
        for (size_t i = 0; i < cut; ++i) {
          delta.add_token_ids(static_cast<uint32_t>(ids[i]));
          // An end of sequence is delivered with its end.
          if (ids[i] != kEos) said.Append(before.Push(ids[i]));
        }
        auto replay = ReplayReceived(received, 1, 1, /*exact=*/true, model_, rules_, &format_);
        ASSERT_TRUE(replay.ok()) << replay.status();
        AnswerSequence::Output last;
        if (replay->endings[0].has_value()) {
          last = *replay->endings[0];
          ++num_ends;
        }
        said.Append(last);
        for (size_t i = cut; i < length; ++i) {
          last = replay->sequences[0].Push(ids[i]);
          said.Append(last);
        }
        EXPECT_EQ(Line(said), Line(whole)) << stop << " after " << cut;
        EXPECT_EQ(last.finish, whole.finish);
        EXPECT_EQ(replay->sequences[0].num_reasoning_tokens(), undisturbed.num_reasoning_tokens());
      }
    }
  }
  EXPECT_EQ(num_ends, 24);
}

TEST_F(ToolCallsTest, ThoughtsOfAFinishedSequenceAreCounted) {
  v1::GenerateResponse received;
  v1::Delta& delta = *received.add_deltas();
  for (const int32_t id : Answer()) delta.add_token_ids(static_cast<uint32_t>(id));
  delta.set_finish_reason(v1::FINISH_REASON_TOOL_CALLS);
  const auto replay = ReplayReceived(received, 1, 1, /*exact=*/true, model_, rules_, &format_);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_TRUE(replay->all_finished());
  EXPECT_EQ(replay->sequences[0].num_reasoning_tokens(),
            static_cast<int>(Ids("\nHm é</think>").size()));
}

TEST_F(ToolCallsTest, PiecesOfACallAreJoinedInADelta) {
  ResponseQueue queue({}, 0, 1, /*collect=*/false, &model_);
  AnswerSequence sequence(&model_, &rules_, &format_);
  std::vector<v1::Delta> deltas;
  const auto pop = [&] {
    while (queue.ready()) {
      const v1::GenerateResponse response = queue.Pop();
      deltas.insert(deltas.end(), response.deltas().begin(), response.deltas().end());
    }
  };
  const std::vector<int32_t> ids = Answer();
  for (size_t i = 0; i < ids.size(); ++i) {
    queue.AddToken(0, ids[i], nullptr, sequence.Push(ids[i]), rules_);
    if (i == 76) pop();  // in the first call's arguments
  }
  pop();
  ASSERT_EQ(deltas.size(), 2u);
  EXPECT_EQ(deltas[0].reasoning(), "Hm é");
  EXPECT_EQ(deltas[0].text(), "I ask.");
  ASSERT_EQ(deltas[0].tool_calls_size(), 1);
  EXPECT_EQ(deltas[0].tool_calls(0).id(), CallId("r", 0, 0));
  ASSERT_EQ(deltas[1].tool_calls_size(), 2);
  EXPECT_EQ(deltas[1].tool_calls(0).id(), "");
  EXPECT_EQ(deltas[0].tool_calls(0).arguments() + deltas[1].tool_calls(0).arguments(),
            R"({"a": "stop"})");
  EXPECT_EQ(deltas[1].tool_calls(1).name(), "g");
  EXPECT_EQ(deltas[1].tool_calls(1).arguments(), "{}");
  EXPECT_EQ(deltas[1].finish_reason(), v1::FINISH_REASON_TOOL_CALLS);
}

// Whatever tokens share a response, its reader has the same answer.
TEST_F(ToolCallsTest, TheOrderOfAnAnswerDoesNotDependOnItsDivision) {
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
  std::vector<int32_t> ids =
      Ids(absl::StrCat("A<think>b</think>C", call, "D", call, call, "<think>e</think>F",
                       "<tool_call>{\"name\": \"g\", \"arguments\": {]H</tool_call>", call));
  ids.push_back(kEos);
  const auto read = [&](std::mt19937& random, uint32_t pops, bool collect) {
    ResponseQueue queue({}, 0, 1, collect, &model_);
    AnswerSequence sequence(&model_, &rules_, &format_);
    Reading reading;
    size_t bytes = 0;
    for (const int32_t id : ids) {
      queue.AddToken(0, id, nullptr, sequence.Push(id), rules_);
      while (!collect && random() % pops == 0 && queue.ready()) reading.Take(queue.Pop());
    }
    queue.AddSummary({});
    bytes = queue.bytes();
    while (queue.ready()) {
      const v1::GenerateResponse response = queue.Pop();
      EXPECT_LE(response.ByteSizeLong(), bytes);
      reading.Take(response);
    }
    return reading.text();
  };
  std::mt19937 random(1);
  const std::string args = "{\"a\": 1}";
  const std::string whole =
      absl::StrCat("\ntext: A\nthought: b\ntext: C\nf: ", args, "\ntext: D\nf: ", args,
                   "\nf: ", args, "\nthought: e\ntext: F\ng: {\ntext: ]H\nf: ", args);
  EXPECT_EQ(read(random, 1, /*collect=*/true), whole);
  for (const uint32_t pops : {1, 2, 3, 5, 10, 30, 1000}) {
    for (int round = 0; round < 20; ++round)
      EXPECT_EQ(read(random, pops, /*collect=*/false), whole);
  }
}

// A model whose chat template has tools.
class ToolRequestTest : public ::testing::Test {
 protected:
  ToolRequestTest() {
    const std::string tokenizer = testing::ReadFile(
        testing::SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json"));
    text_ = *testing::OpenText(
        {.tokenizer_json = tokenizer,
         .chat_template =
             "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}"
             "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
             "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
             "{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|><think>{% endif "
             "%}"});
    model_ = MakeServedModel(text_.get());
    model_.max_context_tokens = 1000;
    request_.set_request_id("r");
    v1::Conversation& conversation = *request_.mutable_conversation();
    v1::ChatMessage& message = *conversation.add_messages();
    message.set_role("user");
    message.set_content("x<think>");
    v1::Tool& tool = *conversation.add_tools();
    tool.set_name("f");
    tool.set_parameters(R"({"properties": {"a": {"type": "string"}}})");
  }

  absl::StatusOr<Generation> Prepare() {
    CallInfo call;
    call.random = testing::CountingRandom();
    const SaltKey key(call.random);
    return PrepareGeneration(request_, call, model_, key);
  }
  void ExpectRefused(const std::string& field, const std::string& message) {
    const absl::Status status = Prepare().status();
    EXPECT_EQ(protocol::FieldOf(status), field) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }

  std::unique_ptr<text::TextModel> text_;
  ServedModel model_;
  v1::GenerateRequest request_;
};

TEST_F(ToolRequestTest, ToolsAreRenderedAndTheAnswerIsParsed) {
  auto generation = Prepare();
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(text_->Decode(generation->request.prompt, true).value(),
            "f;<|user|>x<think><|assistant|><think>");
  EXPECT_EQ(generation->format->prompt_end, "<|assistant|><think>");
  AnswerSequence::Said said;
  for (const int32_t id : Ids("Hm</think><tool_call>{\"name\": \"f\"}</tool_call>")) {
    said.Append(generation->replay.sequences[0].Push(id));
  }
  EXPECT_EQ(Line(said),
            absl::StrCat("text \"\" thought \"Hm\" call 0 ", CallId("r", 0, 0), " f {}"));
}

TEST_F(ToolRequestTest, WithModeNoneTheTemplateSeesNoToolsAndCallsAreText) {
  request_.mutable_conversation()->mutable_tool_choice()->set_mode(v1::ToolChoice::MODE_NONE);
  auto generation = Prepare();
  ASSERT_TRUE(generation.ok()) << generation.status();
  EXPECT_EQ(text_->Decode(generation->request.prompt, true).value(),
            "<|user|>x<think><|assistant|><think>");
  AnswerSequence::Said said;
  for (const int32_t id : Ids("Hm</think><tool_call>{}.")) {
    said.Append(generation->replay.sequences[0].Push(id));
  }
  EXPECT_EQ(Line(said), R"(text "<tool_call>{}." thought "Hm")");
}

TEST_F(ToolRequestTest, CallsOfEarlierTurnsAreRendered) {
  v1::ChatMessage& message = *request_.mutable_conversation()->add_messages();
  message.set_role("assistant");
  v1::ToolCall& call = *message.add_tool_calls();
  call.set_id("i");
  call.set_name("f");
  call.set_arguments(R"({"a": "b"})");
  EXPECT_THAT(text_->Decode(Prepare()->request.prompt, true).value(),
              HasSubstr(R"(<tool_call>{"name": "f", "arguments": {"a": "b"}}</tool_call>)"));
  call.set_arguments("[1]");
  ExpectRefused("conversation.messages[1].tool_calls[0].arguments", "is not a JSON object");
}

TEST_F(ToolRequestTest, WhatIsNotSupportedIsNamed) {
  v1::Tool& tool = *request_.mutable_conversation()->mutable_tools(0);
  tool.set_parameters("{");
  ExpectRefused("conversation.tools[0].parameters", "is not a JSON object");
  tool.set_strict(true);
  tool.set_parameters(R"({"properties": {"a": {"not": {}}}})");
  ExpectRefused("conversation.tools", "not");
  tool.set_parameters("{}");
  v1::ToolChoice& choice = *request_.mutable_conversation()->mutable_tool_choice();
  choice.set_name("f");
  ExpectRefused("conversation.tool_choice.name", "needs MODE_REQUIRED");
  choice.set_mode(v1::ToolChoice::MODE_REQUIRED);
  choice.set_name("g");
  ExpectRefused("conversation.tool_choice.name", "is not the name of a tool");
  choice.clear_name();
  request_.mutable_constraint()->set_regex("(");
  ExpectRefused("constraint.regex", "");
  request_.clear_constraint();
  tool.clear_name();
  ExpectRefused("conversation.tools[0].name", "is empty");
}

// Asks the constraint of the only sequence, behind its thought.
class ConstrainedCallsTest : public ToolRequestTest {
 protected:
  ConstrainedCallsTest() {
    v1::Tool& tool = *request_.mutable_conversation()->add_tools();
    tool.set_name("g");
    tool.set_parameters(R"({"properties": {"n": {"enum": [1, 2]}}, "required": ["n"]})");
  }

  // Returns whether an answer may be all of this and end there.
  bool Allows(const std::string& answer) {
    const auto generation = Prepare();
    EXPECT_TRUE(generation.ok()) << generation.status();
    if (!generation.ok() || generation->request.constraints.empty()) return false;
    engine::TokenConstraint& constraint = *generation->request.constraints[0];
    for (const int32_t id : Ids("Hm</think>" + answer)) {
      if (!constraint.Accept(id)) return false;
    }
    return constraint.CanEnd();
  }

  v1::ToolChoice& choice() { return *request_.mutable_conversation()->mutable_tool_choice(); }

  static constexpr char kF[] = R"(<tool_call>{"name": "f", "arguments": {"a": "x"}}</tool_call>)";
  static constexpr char kG[] = R"(<tool_call>{"name": "g", "arguments": {"n": 1}}</tool_call>)";
  static constexpr char kBadG[] = R"(<tool_call>{"name": "g", "arguments": {"n": 3}}</tool_call>)";
};

TEST_F(ConstrainedCallsTest, ARequiredCallIsAllThatMayCome) {
  choice().set_mode(v1::ToolChoice::MODE_REQUIRED);
  EXPECT_TRUE(Allows(kF));
  EXPECT_TRUE(Allows(kG));
  EXPECT_TRUE(Allows(absl::StrCat(kF, "\n", kG)));
  EXPECT_FALSE(Allows(kBadG));
  EXPECT_FALSE(Allows("Text."));
  EXPECT_FALSE(Allows(""));
  choice().set_single_call(true);
  EXPECT_TRUE(Allows(kF));
  EXPECT_FALSE(Allows(absl::StrCat(kF, "\n", kG)));
  choice().set_name("g");
  EXPECT_TRUE(Allows(kG));
  EXPECT_FALSE(Allows(kF));
}

TEST_F(ConstrainedCallsTest, StrictToolsConstrainTheirOwnArguments) {
  EXPECT_FALSE(Prepare()->rules->constrained) << "nothing is strict";
  request_.mutable_conversation()->mutable_tools(1)->set_strict(true);
  EXPECT_TRUE(Allows("Text."));
  EXPECT_TRUE(Allows(kF));
  EXPECT_TRUE(Allows(kG));
  EXPECT_FALSE(Allows(kBadG));
  EXPECT_TRUE(Allows(R"(<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call>)"));
  choice().set_mode(v1::ToolChoice::MODE_NONE);
  EXPECT_FALSE(Prepare()->rules->constrained);
}

TEST_F(ConstrainedCallsTest, AConstraintIsThatOfAnswersWithoutCalls) {
  request_.mutable_constraint()->set_regex("[0-9]+");
  EXPECT_TRUE(Allows("17"));
  EXPECT_FALSE(Allows("Text."));
  EXPECT_TRUE(Allows(kF));
  choice().set_mode(v1::ToolChoice::MODE_NONE);
  EXPECT_TRUE(Allows("17"));
  EXPECT_FALSE(Allows(kF));
}

TEST_F(ConstrainedCallsTest, AContinuationGoesOnBehindEveryIdOfACall) {
  choice().set_mode(v1::ToolChoice::MODE_REQUIRED);
  choice().set_name("g");
  const std::vector<int32_t> ids = Ids(absl::StrCat("Hm</think>\n", kG));
  std::string whole;
  for (size_t cut = 0; cut <= ids.size(); ++cut) {
    v1::GenerateResponse& received = *request_.mutable_continuation()->mutable_received();
    received.Clear();
    received.mutable_accepted()->set_fingerprint("F");
    received.mutable_accepted()->set_tokenizer_fingerprint("T");
    for (size_t i = 0; i < cut; ++i) received.add_deltas()->add_token_ids(ids[i]);
    auto generation = Prepare();
    ASSERT_TRUE(generation.ok()) << generation.status() << " after " << cut;
    if (cut == ids.size()) {
      ASSERT_TRUE(generation->replay.endings[0].has_value());
      EXPECT_EQ(generation->replay.endings[0]->finish, v1::FINISH_REASON_TOOL_CALLS);
      break;
    }
    engine::TokenConstraint& constraint = *generation->request.constraints[0];
    for (size_t i = cut; i < ids.size(); ++i) {
      EXPECT_FALSE(constraint.MustEnd());
      ASSERT_TRUE(constraint.Accept(ids[i])) << i << " after " << cut;
    }
    EXPECT_TRUE(constraint.MustEnd());
  }
}

TEST_F(ToolRequestTest, CapabilitiesTellOfToolsAndThoughts) {
  EXPECT_THAT(ToProto(model_).capabilities(),
              ::testing::IsSupersetOf(
                  {v1::CAPABILITY_TOOLS, v1::CAPABILITY_REQUIRED_CALLS, v1::CAPABILITY_REASONING}));
  EXPECT_EQ(ToProto(model_).response_format(), "hermes");
}

}  // namespace
}  // namespace continuo::server
