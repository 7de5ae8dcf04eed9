// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/top.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/cli/fleet/trace.h"
#include "services/common/grpc/grpc_server.h"
#include "tests/cli/fleet/steps.h"

namespace continuo::cli {
namespace {

using testing::FakeStepsWorker;
using ::testing::HasSubstr;
using testing::MakeStep;
using testing::MakeSteps;
using ::testing::Not;

// Interrupts as soon as the output since the last flush contains `needle`.
class InterruptingBuffer : public std::stringbuf {
 public:
  InterruptingBuffer(Interrupt* interrupt, std::string needle)
      : interrupt_(interrupt), needle_(std::move(needle)) {}
  int sync() override {
    if (!needle_.empty() && str().find(needle_) != std::string::npos) {
      needle_.clear();
      interrupt_->Signal();
    }
    return 0;
  }

 private:
  Interrupt* const interrupt_;
  std::string needle_;
};

class TopTest : public ::testing::Test {
 protected:
  void Start(std::vector<FakeStepsWorker::Life> lives) {
    v1::WatchLoadResponse load;
    load.set_worker("w0");
    load.set_state(v1::WORKER_STATE_SERVING);
    load.set_running_requests(1);
    service_ = std::make_unique<FakeStepsWorker>(load, std::move(lives));
    auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {service_.get()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    flags_.connection.server = trace_flags_.connection.server = server_->address();
    flags_.interval = absl::Milliseconds(20);
    trace_flags_.out = (std::filesystem::path(::testing::TempDir()) /
                        ::testing::UnitTest::GetInstance()->current_test_info()->name())
                           .string();
  }
  // Runs until the picture contains `needle`.
  int RunUntil(const std::string& needle, bool terminal = false) {
    InterruptingBuffer buffer(&interrupt_, needle);
    std::ostream out(&buffer);
    Console console{in_, out, err_};
    console.out_terminal = terminal;
    const int code = RunTop(flags_, interrupt_, console);
    text_ = buffer.str();
    return code;
  }
  int Trace() { return RunTrace(trace_flags_, interrupt_, Console{in_, out_, err_}); }
  nlohmann::json ReadTrace() const {
    std::ifstream file(trace_flags_.out);
    return nlohmann::json::parse(file);
  }

  std::unique_ptr<FakeStepsWorker> service_;
  std::unique_ptr<common::GrpcServer> server_;
  TopFlags flags_;
  TraceFlags trace_flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  std::ostringstream out_, err_;
  std::string text_;
};

TEST_F(TopTest, DrawsTheBatchUntilInterrupted) {
  Start({{{MakeSteps({MakeStep(1, {{"mine", 4, 0, 4, 1}})})}, {}}});
  EXPECT_EQ(RunUntil("mine"), 130);
  EXPECT_THAT(text_, HasSubstr("SERVING"));
  EXPECT_THAT(text_, Not(HasSubstr("\x1b")));  // no terminal
  EXPECT_EQ(err_.str(), "");
}

TEST_F(TopTest, ATerminalIsAsBeforeAtTheEnd) {
  Start({{{MakeSteps({MakeStep(1, {{"mine", 4, 0, 4, 1}})})}, {}}});
  EXPECT_EQ(RunUntil("mine", /*terminal=*/true), 130);
  EXPECT_EQ(text_.rfind("\x1b[?1049h", 0), 0u);
  EXPECT_EQ(text_.substr(text_.size() - 14), "\x1b[?25h\x1b[?1049l");
}

TEST_F(TopTest, GoesOnWhenTheWorkerIsBack) {
  Start({{{MakeSteps({MakeStep(90, {{"before", 4, 0, 4, 1}})})}, absl::UnavailableError("ends")},
         {{MakeSteps({MakeStep(1, {{"after", 4, 0, 4, 1}})})}, {}}});
  EXPECT_EQ(RunUntil("after"), 130);
}

TEST_F(TopTest, EndsAfterItsFrames) {
  Start({});
  flags_.frames = 2;
  EXPECT_EQ(RunUntil("\x01"), 0);
  EXPECT_EQ(text_.find("w0"), 0u);
}

TEST_F(TopTest, AnAddressWithoutAWorkerIsAnError) {
  flags_.connection.server = "127.0.0.1:1";
  flags_.timeout = absl::Milliseconds(300);
  EXPECT_EQ(RunUntil("\x01"), 1);
  EXPECT_THAT(err_.str(), HasSubstr("continuo top: UNAVAILABLE"));
  trace_flags_.connection.server = "127.0.0.1:1";
  trace_flags_.timeout = absl::Milliseconds(300);
  EXPECT_EQ(Trace(), 1);
}

TEST_F(TopTest, AnAddressThatIsNoWorkersIsAnErrorAtOnce) {
  auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {});
  ASSERT_TRUE(server.ok());
  flags_.connection.server = (*server)->address();
  flags_.timeout = absl::Hours(1);
  EXPECT_EQ(RunUntil("\x01"), 1);
  EXPECT_THAT(err_.str(), HasSubstr("UNIMPLEMENTED"));
}

TEST_F(TopTest, ATraceIsWrittenForItsDuration) {
  Start({{{MakeSteps({MakeStep(1, {{"mine", 4, 0, 4, 1}})})}, {}}});
  trace_flags_.duration = absl::Milliseconds(50);
  EXPECT_EQ(Trace(), 0);
  EXPECT_EQ(ReadTrace()["otherData"]["ended"], "duration");
  EXPECT_THAT(err_.str(), HasSubstr(" steps, "));
}

TEST_F(TopTest, AnInterruptedTraceIsWholeAndHasBothLivesOfAWorker) {
  Start({{{MakeSteps({MakeStep(1, {{"mine", 4, 0, 4, 1}})})}, absl::UnavailableError("ends")},
         {{MakeSteps({MakeStep(1, {{"after", 4, 0, 4, 1}})})}, {}}});
  InterruptingBuffer buffer(&interrupt_, "after");
  std::ostream out(&buffer);
  out << std::unitbuf;  // every write is a flush
  trace_flags_.out = "-";
  trace_flags_.duration = absl::Hours(1);
  EXPECT_EQ(RunTrace(trace_flags_, interrupt_, Console{in_, out, err_}), 130);
  const nlohmann::json trace = nlohmann::json::parse(buffer.str());
  EXPECT_EQ(trace["otherData"]["ended"], "interrupt");
  EXPECT_EQ(trace["otherData"]["steps"], 2);
  EXPECT_THAT(err_.str(), HasSubstr("2 steps, 2 generations"));
}

TEST_F(TopTest, AFileThatCannotBeWrittenIsAnError) {
  Start({});
  trace_flags_.out = "/nowhere/at/all";
  EXPECT_EQ(Trace(), 1);
  EXPECT_THAT(err_.str(), HasSubstr("cannot write /nowhere/at/all"));
}

}  // namespace
}  // namespace continuo::cli
