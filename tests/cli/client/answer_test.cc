// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <sstream>

#include "services/cli/client/generation.h"
#include "tests/cli/fake_inference.h"
#include "tests/cli/output.h"

namespace continuo::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Step = ::continuo::testing::FakeInference::Step;

class AnswerTest : public ::testing::Test {
 protected:
  AnswerTest() {
    auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    flags_.connection.server = server_->address();
    flags_.prompt = "prompt";
    flags_.request.seed = 3;
    flags_.request.max_tokens = 20;
    flags_.request.ignore_eos = true;
    flags_.request.first_backoff = absl::Milliseconds(1);
  }
  int Generate(bool terminal = false) {
    std::ostream out(&out_);
    out_.clear();
    err_.str("");
    return RunGenerate(flags_, interrupt_, Console{in_, out, err_, terminal, terminal});
  }

  testing::FakeInference service_;
  std::unique_ptr<common::GrpcServer> server_;
  AnswerFlags flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  testing::Output out_;
  std::ostringstream err_;
};

TEST_F(AnswerTest, TheTextEndsWithANewline) {
  EXPECT_EQ(Generate(), 0) << err_.str();
  EXPECT_EQ(out_.Count('w'), 20);
  EXPECT_EQ(out_.str().back(), '\n');
  EXPECT_EQ(err_.str(), "");
}

TEST_F(AnswerTest, TheFlagsArriveAtTheServer) {
  flags_.request.temperature = 0.5f;
  flags_.request.stop = {"a", "b"};
  flags_.request.priority = -3;
  flags_.prompt = "-";
  in_.str("from\nthe input");
  EXPECT_EQ(Generate(), 0);
  const v1::GenerateRequest request = service_.requests().at(0);
  EXPECT_EQ(request.text(), "from\nthe input");
  EXPECT_EQ(request.sampling().temperature(), 0.5f);
  EXPECT_FALSE(request.sampling().has_top_p());
  EXPECT_EQ(request.stopping().strings(1), "b");
  EXPECT_EQ(request.priority(), -3);
  EXPECT_FALSE(request.has_continuation());
}

// Wherever the stream is cut, the text is the same.
TEST_F(AnswerTest, ALostStreamGoesOnWithoutADifference) {
  flags_.request.num_sequences = 3;
  flags_.request.ignore_eos = false;
  EXPECT_EQ(Generate(), 0);
  const std::string undisturbed = out_.str();
  EXPECT_THAT(undisturbed, HasSubstr("--- 3 of 3\n"));
  const absl::Status lost = absl::UnavailableError("lost");
  for (int first = 1; first < 21; ++first) {
    service_.SetScript({{first, lost}, {0, lost}, {1 + first % 4, lost}});
    EXPECT_EQ(Generate(), 0) << err_.str();
    EXPECT_EQ(out_.str(), undisturbed) << "cut after " << first;
  }
}

TEST_F(AnswerTest, TheServersSeedIsKept) {
  flags_.request.seed.reset();
  service_.SetScript({{5, absl::UnavailableError("lost")}});
  EXPECT_EQ(Generate(), 0);
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2);
  EXPECT_NE(requests[1].continuation().received().accepted().seed(), 0);
  EXPECT_EQ(requests[1].continuation().received().sequence(), 4);
  EXPECT_EQ(requests[1].continuation().received().deltas(0).token_ids_size(), 5);
  EXPECT_EQ(requests[1].continuation().received().deltas(0).text(), "");
}

TEST_F(AnswerTest, AStatusAfterTheSummaryDoesNotCount) {
  service_.SetScript({{-1, absl::UnavailableError("late")}});
  EXPECT_EQ(Generate(), 0);
  EXPECT_EQ(service_.requests().size(), 1);
}

TEST_F(AnswerTest, AnAnswerThatEndsWellBeforeItsSummaryGoesOn) {
  ASSERT_EQ(Generate(), 0);
  const std::string undisturbed = out_.str();
  service_.SetScript({{3, absl::OkStatus()}});
  EXPECT_EQ(Generate(), 0) << err_.str();
  EXPECT_EQ(out_.str(), undisturbed);
  EXPECT_EQ(service_.requests().size(), 3);
}

TEST_F(AnswerTest, AnErrorIsOneLineWithItsReason) {
  service_.SetScript({{0, protocol::WithReason(absl::UnavailableError("no worker\x1b[2J\n"),
                                               protocol::kReasonNoWorker)}});
  EXPECT_EQ(Generate(), 1);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(err_.str(), "continuo generate: UNAVAILABLE (NO_WORKER): no worker\ufffd[2J \n");
}

TEST_F(AnswerTest, WhatIsNotUnavailableIsNotRetried) {
  service_.SetScript({{3, absl::InternalError("broken")}});
  EXPECT_EQ(Generate(), 1);
  EXPECT_EQ(service_.requests().size(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("INTERNAL: broken"));
}

TEST_F(AnswerTest, AnOverloadedServerIsAskedAgainWhenItSays) {
  service_.SetScript(
      {{0, protocol::WithRetryInfo(absl::ResourceExhaustedError("full"), absl::Milliseconds(1))}});
  EXPECT_EQ(Generate(), 0);
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2);
  EXPECT_TRUE(requests[1].has_continuation());
  EXPECT_FALSE(requests[1].continuation().has_received());
}

TEST_F(AnswerTest, WithoutTimeToReconnectTheErrorIsTold) {
  flags_.request.reconnect_for = absl::ZeroDuration();
  service_.SetScript({{3, absl::UnavailableError("lost")}});
  EXPECT_EQ(Generate(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("UNAVAILABLE: lost"));
}

TEST_F(AnswerTest, AMissingResponseIsNoticed) {
  service_.SetScript({{.skip_a_number = true}});
  EXPECT_EQ(Generate(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("DATA_LOSS: response 2 came where 1 was due"));
}

TEST_F(AnswerTest, AServerThatIsNotThereIsAnErrorAtOnce) {
  server_->Shutdown(absl::InfinitePast());
  EXPECT_EQ(Generate(), 1);
  EXPECT_THAT(err_.str(), StartsWith("continuo generate: UNAVAILABLE: "));
}

TEST_F(AnswerTest, AnInterruptCancelsTheCall) {
  service_.SetScript({{.num_responses = 3, .hang = true}});
  auto code = std::async(std::launch::async, [this] { return Generate(); });
  out_.Await('w', 3);
  EXPECT_TRUE(interrupt_.Signal());
  EXPECT_EQ(code.get(), 130);
  EXPECT_EQ(out_.Count('w'), 3);
  EXPECT_FALSE(interrupt_.Signal());
}

TEST_F(AnswerTest, TheDeadlineIsTheCalls) {
  flags_.request.timeout = absl::Milliseconds(50);
  service_.SetScript({{.num_responses = 3, .hang = true}});
  EXPECT_EQ(Generate(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(AnswerTest, VerboseTellsUsage) {
  flags_.verbose = true;
  service_.SetScript({{2, absl::UnavailableError("lost")}});
  EXPECT_EQ(Generate(), 0);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("[UNAVAILABLE: lost; going on]"),
                    HasSubstr("[5 prompt tokens (2 cached), 20 generated, first after "),
                    HasSubstr("LENGTH, seed 3, worker w0, migrated 1×]")));
}

TEST_F(AnswerTest, JsonIsOneResponseALine) {
  flags_.json = true;
  flags_.request.max_tokens = 2;
  EXPECT_EQ(Generate(), 0);
  EXPECT_EQ(out_.Count('\n'), 3);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("\"token_ids\":["), HasSubstr("\"completion_tokens\":2")));
}

}  // namespace
}  // namespace continuo::cli
