// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/cli/fake_inference.h"

namespace continuo::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

v1::WatchLoadResponse SomeLoad(const std::string& worker) {
  v1::WatchLoadResponse load;
  load.set_worker(worker);
  load.set_model("m");
  load.set_state(v1::WORKER_STATE_SERVING);
  load.set_running_requests(3);
  load.set_waiting_requests(1);
  load.set_used_kv_blocks(25);
  load.set_cached_kv_blocks(50);
  load.set_total_kv_blocks(100);
  load.set_decode_tokens_per_second(1234);
  return load;
}

class FleetTest : public ::testing::Test {
 protected:
  FleetTest() : service_(SomeLoad("w0")) {
    auto server = common::GrpcServer::Start({.listen = "127.0.0.1:0"}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    flags_.workers = {server_->address()};
  }
  int Run() { return RunFleet(flags_, interrupt_, Console{in_, out_, err_}); }

  testing::FakeWorkerService service_;
  std::unique_ptr<common::GrpcServer> server_;
  FleetFlags flags_;
  Interrupt interrupt_;
  std::istringstream in_;
  std::ostringstream out_, err_;
};

TEST_F(FleetTest, ShowsAWorker) {
  EXPECT_EQ(Run(), 0);
  const std::string line = out_.str().substr(out_.str().find('\n') + 1);
  EXPECT_THAT(out_.str(), HasSubstr("RUNNING"));
  EXPECT_THAT(line, HasSubstr("SERVING"));
  EXPECT_THAT(line, HasSubstr("25% of 100"));
  EXPECT_THAT(line, HasSubstr("1.23k"));
}

TEST_F(FleetTest, AWorkerThatIsNotThereIsTold) {
  flags_.workers.push_back("127.0.0.1:1");
  EXPECT_EQ(Run(), 1);
  EXPECT_THAT(out_.str(), HasSubstr("w0"));
  EXPECT_THAT(out_.str(), HasSubstr("UNREACHABLE  UNAVAILABLE"));
}

TEST_F(FleetTest, JsonHasTheSame) {
  flags_.json = true;
  EXPECT_EQ(Run(), 0);
  const auto worker = nlohmann::json::parse(out_.str())["workers"][0];
  EXPECT_EQ(worker["state"], "SERVING");
  EXPECT_EQ(worker["used_kv_blocks"], 25);
  EXPECT_EQ(worker["address"], server_->address());
}

TEST_F(FleetTest, WatchEndsWithAnInterrupt) {
  flags_.watch = true;
  flags_.interval = absl::Milliseconds(1);
  std::thread thread([this] {
    while (!interrupt_.Signal()) std::this_thread::yield();
  });
  EXPECT_EQ(Run(), 130);
  thread.join();
}

TEST(FormatFleetTest, SeveralWorkersHaveASum) {
  WorkerRow a{"a:1", {{"m", SomeLoad("w0")}}, {}}, b{"b:1", {{"m", SomeLoad("w1")}}, {}};
  EXPECT_THAT(FormatFleet({a, b}), HasSubstr("total"));
  EXPECT_THAT(FormatFleet({a, b}), HasSubstr("25% of 200"));
}

TEST(FormatFleetTest, AnUnknownStateAndNamesWithEscapesDoNoHarm) {
  v1::WatchLoadResponse load = SomeLoad("\x1b[2J");
  load.set_state(static_cast<v1::WorkerState>(77));
  load.set_total_kv_blocks(0);
  const std::string table = FormatFleet({{"a:1", {{"m", load}}, {}}});
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

TEST(ResolveWorkersTest, NamesBecomeAddresses) {
  EXPECT_THAT(*ResolveWorkers({"a:1", "b:2"}), ElementsAre("a:1", "b:2"));
  EXPECT_THAT(*ResolveWorkers({"dns:///localhost:7"}),
              ::testing::AnyOf(::testing::Contains("127.0.0.1:7"), ::testing::Contains("[::1]:7")));
  EXPECT_FALSE(ResolveWorkers({"dns:///localhost"}).ok());
  EXPECT_FALSE(ResolveWorkers({"dns:///no.such.name.invalid:7"}).ok());
}

}  // namespace
}  // namespace continuo::cli
