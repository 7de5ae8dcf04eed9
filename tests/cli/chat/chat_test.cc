// SPDX-License-Identifier: Apache-2.0
#include "services/cli/chat/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/fake_inference.h"
#include "tests/cli/output.h"

namespace continuo::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

v1::Delta Text(const std::string& text, v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::Delta delta;
  delta.set_text(text);
  delta.set_finish_reason(finish);
  return delta;
}

// A piece of a call; the first one has id and name.
v1::Delta Call(const std::string& id, const std::string& name, const std::string& arguments,
               v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED) {
  v1::Delta delta;
  v1::ToolCall& call = *delta.add_tool_calls();
  call.set_id(id);
  call.set_name(name);
  call.set_arguments(arguments);
  delta.set_finish_reason(finish);
  return delta;
}

class ChatTest : public ::testing::Test {
 protected:
  ChatTest() {
    auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    AnswerFlags& answer = flags_.answer;
    answer.connection.server = server_->address();
    answer.request.seed = 3;
    answer.request.max_tokens = 20;
    answer.request.ignore_eos = true;
    answer.request.first_backoff = absl::Milliseconds(1);
  }
  // Two tools: `echo` answers with its arguments, `hangs` opens a pipe and does not end.
  void UseTools() {
    flags_.tools.file = ::testing::TempDir() + "chat_tools.json";
    std::ofstream(flags_.tools.file) << R"([
      {"type": "function", "function": {"name": "echo", "description": "Echoes."},
       "command": ["cat"]},
      {"type": "function", "function": {"name": "hangs"},
       "command": ["sh", "-c", ": >\"$1\"; while :; do :; done", "-", ")"
                                     << pipe_ << R"("]}])";
    flags_.tools.allowed = {"echo", "hangs"};
    flags_.tools.limits.timeout = absl::Hours(1);
  }
  int Chat(const std::string& input, bool terminal = false) {
    std::ostream out(&out_);
    in_.clear();
    in_.str(input);
    out_.clear();
    err_.str("");
    return RunChat(flags_, interrupt_, Console{in_, out, err_, terminal, terminal});
  }

  testing::FakeInference service_;
  std::unique_ptr<common::GrpcServer> server_;
  ChatFlags flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  testing::Output out_;
  const std::string pipe_ = ::testing::TempDir() + "chat_tools_pipe";
  std::ostringstream err_;
};

TEST_F(ChatTest, AChatRemembersWhatWasSaid) {
  flags_.system = "Be brief.";
  EXPECT_EQ(Chat("first\nsecond\\\nline\n\n"), 0) << err_.str();
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2);
  const v1::Conversation& last = requests[1].conversation();
  ASSERT_EQ(last.messages_size(), 4);
  EXPECT_EQ(last.messages(0).role(), "system");
  EXPECT_EQ(last.messages(1).content(), "first");
  EXPECT_EQ(last.messages(2).role(), "assistant");
  EXPECT_THAT(out_.str(), StartsWith(last.messages(2).content()));
  EXPECT_EQ(last.messages(3).content(), "second\nline");
}

TEST_F(ChatTest, AChatCanBeginAnew) {
  EXPECT_EQ(Chat("first\n/reset\nsecond\n/system Be long.\nthird\n/exit\nnever\n"), 0);
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 3);
  EXPECT_EQ(requests[1].conversation().messages_size(), 1);
  EXPECT_EQ(requests[2].conversation().messages(0).content(), "Be long.");
}

TEST_F(ChatTest, AChatOnATerminalLivesOnAfterAnError) {
  service_.SetScript({{0, absl::InvalidArgumentError("no")}});
  EXPECT_EQ(Chat("first\nsecond\n", /*terminal=*/true), 0);
  EXPECT_THAT(err_.str(), HasSubstr("INVALID_ARGUMENT: no"));
  EXPECT_EQ(service_.requests().at(1).conversation().messages_size(), 1);
  service_.SetScript({{0, absl::InvalidArgumentError("no")}});
  EXPECT_EQ(Chat("first\nsecond\n", /*terminal=*/false), 1);
}

TEST_F(ChatTest, AnInterruptEndsOnlyTheAnswerOfAChatOnATerminal) {
  service_.SetScript({{.num_responses = 3, .hang = true}});
  auto code = std::async(std::launch::async, [this] { return Chat("one\ntwo\n", true); });
  out_.Await('w', 3);
  EXPECT_TRUE(interrupt_.Signal());
  EXPECT_EQ(code.get(), 0);
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2);
  EXPECT_EQ(requests[1].conversation().messages_size(), 3);
}

const std::vector<std::vector<v1::Delta>> kTwoCalls = {
    {Text("Let me look."), Call("id1", "echo", R"({"a": )"), Call("", "", "1}"),
     Call("id2", "echo", R"({"b": 2})", v1::FINISH_REASON_TOOL_CALLS)},
    {Text("It is "), Text("there.", v1::FINISH_REASON_STOP)}};

TEST_F(ChatTest, CallsRunAndTheirResultsAreSent) {
  UseTools();
  service_.SetAnswers(kTwoCalls);
  EXPECT_EQ(Chat("Where?\n"), 0) << err_.str();
  EXPECT_EQ(out_.str(), "Let me look.\nIt is there.\n");
  EXPECT_EQ(err_.str(),
            "[echo {\"a\": 1}]\n[echo {\"b\": 2}]\n"
            "[echo → {\"a\": 1}]\n[echo → {\"b\": 2}]\n");
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2);
  const v1::Conversation& last = requests[1].conversation();
  ASSERT_EQ(last.tools_size(), 2);
  EXPECT_EQ(last.tools(0).description(), "Echoes.");
  ASSERT_EQ(last.messages_size(), 4);
  EXPECT_EQ(last.messages(1).role(), "assistant");
  EXPECT_EQ(last.messages(1).content(), "Let me look.");
  ASSERT_EQ(last.messages(1).tool_calls_size(), 2);
  EXPECT_EQ(last.messages(1).tool_calls(0).arguments(), R"({"a": 1})");
  EXPECT_EQ(last.messages(2).role(), "tool");
  EXPECT_EQ(last.messages(2).tool_call_id(), "id1");
  EXPECT_EQ(last.messages(2).name(), "echo");
  EXPECT_EQ(last.messages(3).tool_call_id(), "id2");
  EXPECT_EQ(last.messages(3).content(), R"({"b": 2})");
}

// Wherever the streams of the two answers are cut, both go on.
TEST_F(ChatTest, LostStreamsGoOnWithinACall) {
  UseTools();
  service_.SetAnswers(kTwoCalls);
  EXPECT_EQ(Chat("Where?\n"), 0);
  const std::string said = out_.str(), shown = err_.str();
  const std::string conversation = service_.requests()[1].conversation().SerializeAsString();
  const absl::Status lost = absl::UnavailableError("lost");
  for (int first = 1; first <= 4; ++first) {
    service_.SetScript({{first, lost}, {0, lost}, {-1, absl::OkStatus()}, {1, lost}});
    EXPECT_EQ(Chat("Where?\n"), 0) << err_.str();
    EXPECT_EQ(out_.str(), said) << "cut after " << first;
    EXPECT_EQ(err_.str(), shown) << "cut after " << first;
    EXPECT_EQ(service_.requests().back().conversation().SerializeAsString(), conversation);
  }
}

TEST_F(ChatTest, ThoughtsGoBackWithTheirCalls) {
  UseTools();
  v1::Delta thought;
  thought.set_reasoning("Hm.");
  service_.SetAnswers({{thought, Call("id1", "echo", "{}", v1::FINISH_REASON_TOOL_CALLS)},
                       {thought, Text("Yes.", v1::FINISH_REASON_STOP)},
                       {Text("No.", v1::FINISH_REASON_STOP)}});
  EXPECT_EQ(Chat("one\ntwo\n"), 0) << err_.str();
  const v1::Conversation last = service_.requests().at(2).conversation();
  ASSERT_EQ(last.messages_size(), 5);
  EXPECT_EQ(last.messages(1).reasoning(), "Hm.");
  EXPECT_EQ(last.messages(3).content(), "Yes.");
  EXPECT_EQ(last.messages(3).reasoning(), "");
}

TEST_F(ChatTest, RoundsOfCallsAreLimited) {
  UseTools();
  flags_.tools.rounds = 2;
  const std::vector<v1::Delta> call = {Call("id", "echo", "{}", v1::FINISH_REASON_TOOL_CALLS)};
  service_.SetAnswers({call, call, call, call});
  EXPECT_EQ(Chat("Where?\n"), 1);
  EXPECT_EQ(service_.requests().size(), 3);
  EXPECT_THAT(err_.str(), HasSubstr("continuo chat: RESOURCE_EXHAUSTED: the model called tools "
                                    "again after 2 rounds (--tool_rounds)\n"));
}

// On a terminal the conversation goes on without the message that had no answer.
TEST_F(ChatTest, AMessageWithoutAnAnswerIsDroppedWithItsCalls) {
  UseTools();
  service_.SetAnswers(kTwoCalls);
  service_.SetScript({{}, {0, absl::InvalidArgumentError("too long")}});
  EXPECT_EQ(Chat("first\nsecond\n", /*terminal=*/true), 0);
  EXPECT_THAT(err_.str(), HasSubstr("INVALID_ARGUMENT: too long"));
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 4);
  EXPECT_EQ(requests[1].conversation().messages_size(), 4);
  ASSERT_EQ(requests[2].conversation().messages_size(), 1);
  EXPECT_EQ(requests[2].conversation().messages(0).content(), "second");
}

TEST_F(ChatTest, ArgumentsThatAreNoJsonDoNotRunAndAreNotSentBack) {
  UseTools();
  service_.SetAnswers({{Call("id", "echo", "{a", v1::FINISH_REASON_TOOL_CALLS)},
                       {Text("Sorry.", v1::FINISH_REASON_STOP)}});
  EXPECT_EQ(Chat("Where?\n"), 0) << err_.str();
  const v1::Conversation last = service_.requests().at(1).conversation();
  EXPECT_EQ(last.messages(1).tool_calls(0).arguments(), "{}");
  EXPECT_THAT(last.messages(2).content(), StartsWith("error: the arguments"));
}

TEST_F(ChatTest, ACallThatWasCutOffDoesNotRun) {
  UseTools();
  service_.SetAnswers({{Text("Let me"), Call("id", "echo", "{}", v1::FINISH_REASON_LENGTH)}});
  EXPECT_EQ(Chat("Where?\n"), 0) << err_.str();
  EXPECT_EQ(service_.requests().size(), 1);
  EXPECT_EQ(err_.str(), "[echo {}]\n[the answer was cut off in a call, which does not run]\n");
}

TEST_F(ChatTest, AnInterruptEndsACommand) {
  UseTools();
  ASSERT_EQ(mkfifo(pipe_.c_str(), 0600), 0);
  service_.SetAnswers({{Call("id", "hangs", "{}", v1::FINISH_REASON_TOOL_CALLS)}});
  auto code = std::async(std::launch::async, [this] { return Chat("Where?\n"); });
  { const std::ifstream opened_by_both(pipe_); }
  EXPECT_TRUE(interrupt_.Signal());
  EXPECT_EQ(code.get(), 130);
  EXPECT_EQ(service_.requests().size(), 1);
  unlink(pipe_.c_str());
}

TEST_F(ChatTest, WithoutToolsNoneAreSent) {
  EXPECT_EQ(Chat("first\n"), 0);
  EXPECT_EQ(service_.requests().at(0).conversation().tools_size(), 0);
}

TEST_F(ChatTest, ABadFileIsAnErrorAtOnce) {
  flags_.tools.file = "/no/such.json";
  EXPECT_EQ(Chat("first\n"), 1);
  EXPECT_THAT(err_.str(), StartsWith("continuo chat: INVALID_ARGUMENT: /no/such.json: "));
  EXPECT_TRUE(service_.requests().empty());
}

}  // namespace
}  // namespace continuo::cli
