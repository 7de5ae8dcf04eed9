// SPDX-License-Identifier: Apache-2.0
#include "services/common/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "services/common/version.h"

namespace continuo::common {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Values {
  std::string print, model, listen = "0.0.0.0:50051", device = "cpu";
  std::vector<std::string> workers, stops;
  bool deterministic = true;
  int max_running = 256;
  int64_t offset = 0;
  uint64_t memory = uint64_t{1} << 30;
  absl::Duration grace = absl::Seconds(5);
  double rate = 1;
  std::optional<uint64_t> seed;
  std::optional<float> temperature;
};

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() : flags_("continuo-test", "Tests flags.") {
    flags_.Text("model", &v_.model, "folder of the model");
    flags_.Address("listen", &v_.listen, "where to listen");
    flags_.Choice("device", &v_.device, {"cpu", "cuda"}, "what computes");
    flags_.TextList("workers", &v_.workers, "addresses");
    flags_.Repeated("stop", &v_.stops, "a stop string");
    flags_.OptionalChoice("print", &v_.print, {"text", "json"}, "what to print");
    flags_.Switch("deterministic", &v_.deterministic, "same bits");
    flags_.Integer("max_running", &v_.max_running, 1, 4096, "requests at a time");
    flags_.Integer("offset", &v_.offset, int64_t{-10}, int64_t{10}, "a shift");
    flags_.Bytes("memory", &v_.memory, 1 << 20, uint64_t{1} << 40, "for the KV cache");
    flags_.Duration("grace", &v_.grace, absl::ZeroDuration(), absl::Seconds(30), "of a drain");
    flags_.Number("rate", &v_.rate, 0, 1000, "requests a second");
    flags_.Integer("seed", &v_.seed, uint64_t{0}, std::numeric_limits<uint64_t>::max(), "a seed");
    flags_.Number("temperature", &v_.temperature, 0, 100, "of the sampling");
  }

  std::optional<int> Parse(std::vector<const char*> args) {
    args.insert(args.begin(), "continuo-test");
    out_.str("");
    err_.str("");
    return flags_.Parse(static_cast<int>(args.size()), args.data(), out_, err_,
                        [this](const char* name) {
                          const auto found = env_.find(name);
                          return found == env_.end() ? nullptr : found->second.c_str();
                        });
  }
  // Returns the one line for a bad command line.
  std::string Error(std::vector<const char*> args) {
    EXPECT_EQ(Parse(std::move(args)), 2);
    EXPECT_EQ(out_.str(), "");
    const std::string line = err_.str();
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    return line;
  }

  Values v_;
  std::map<std::string, std::string> env_;
  std::ostringstream out_, err_;
  Flags flags_;
};

TEST_F(FlagsTest, DefaultsStay) {
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(v_.max_running, 256);
  EXPECT_EQ(v_.seed, std::nullopt);
  EXPECT_FALSE(flags_.given("max_running"));
}

TEST_F(FlagsTest, EveryTypeIsTaken) {
  EXPECT_EQ(
      Parse({"--model=/m", "--listen=[::]:0", "--device", "cuda", "--workers=a:1,b:2", "--stop=x,y",
             "--stop=z", "--deterministic=false", "--max_running=7", "--offset=-3", "--memory=4GiB",
             "--grace=1500ms", "--rate=2.5", "--seed=18446744073709551615", "--temperature=0.5"}),
      std::nullopt)
      << err_.str();
  EXPECT_EQ(v_.model, "/m");
  EXPECT_EQ(v_.listen, "[::]:0");
  EXPECT_EQ(v_.device, "cuda");
  EXPECT_THAT(v_.workers, ElementsAre("a:1", "b:2"));
  EXPECT_THAT(v_.stops, ElementsAre("x,y", "z"));
  EXPECT_FALSE(v_.deterministic);
  EXPECT_EQ(v_.max_running, 7);
  EXPECT_EQ(v_.offset, -3);
  EXPECT_EQ(v_.memory, uint64_t{4} << 30);
  EXPECT_EQ(v_.grace, absl::Milliseconds(1500));
  EXPECT_EQ(v_.rate, 2.5);
  EXPECT_EQ(v_.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(v_.temperature, 0.5f);
}

TEST_F(FlagsTest, TextIsTakenAsItIs) {
  EXPECT_EQ(Parse({"--stop=[a,b]", "--stop=", "--stop= x ", "--model="}), std::nullopt);
  EXPECT_THAT(v_.stops, ElementsAre("[a,b]", "", " x "));
}

TEST_F(FlagsTest, ASwitchNeedsNoValue) {
  v_.deterministic = false;
  EXPECT_EQ(Parse({"--deterministic"}), std::nullopt);
  EXPECT_TRUE(v_.deterministic);
}

TEST_F(FlagsTest, AnOptionalChoiceNeedsNoValue) {
  EXPECT_EQ(Parse({"--print"}), std::nullopt);
  EXPECT_EQ(v_.print, "text");
  EXPECT_EQ(Parse({"--print=json"}), std::nullopt);
  EXPECT_EQ(v_.print, "json");
  EXPECT_EQ(Parse({"--print=false"}), std::nullopt);
  EXPECT_EQ(v_.print, "");
  EXPECT_EQ(Parse({"--print", "--max_running=3"}), std::nullopt) << "the next flag is no value";
  EXPECT_EQ(v_.print, "text");
  EXPECT_THAT(Error({"--print=loud"}), HasSubstr("one of text|json"));
  env_ = {{"CONTINUO_PRINT", "json"}};
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(v_.print, "json");
  EXPECT_EQ(Parse({"--help"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("--print[=text|json]"));
}

TEST_F(FlagsTest, ARequiredFlagMayBeNeedlessWithAnother) {
  flags_.Require("model", [this] { return v_.print == "json"; });
  EXPECT_EQ(Parse({"--print=json"}), std::nullopt);
  EXPECT_THAT(Error({"--print"}), HasSubstr("--model is needed"));
}

TEST_F(FlagsTest, TheLastOfTwoCounts) {
  EXPECT_EQ(Parse({"--max_running=1", "--max_running=2"}), std::nullopt);
  EXPECT_EQ(v_.max_running, 2);
}

TEST_F(FlagsTest, TheEnvironmentCountsUnlessTheFlagIsGiven) {
  env_ = {{"CONTINUO_MAX_RUNNING", "9"},
          {"CONTINUO_GRACE", "1s"},
          {"CONTINUO_DETERMINISTIC", "0"},
          {"CONTINUO_RATE", ""}};
  EXPECT_EQ(Parse({"--grace=2s"}), std::nullopt);
  EXPECT_EQ(v_.max_running, 9);
  EXPECT_TRUE(flags_.given("max_running"));
  EXPECT_EQ(v_.grace, absl::Seconds(2));
  EXPECT_FALSE(v_.deterministic);
  EXPECT_EQ(v_.rate, 1);
}

TEST_F(FlagsTest, ABadValueIsOneLineWithFlagValueAndLimits) {
  EXPECT_EQ(Error({"--max_running=0"}),
            "continuo-test: --max_running: \"0\" is not an integer from 1 to 4096\n");
  EXPECT_EQ(Error({"--max_running=12x"}),
            "continuo-test: --max_running: \"12x\" is not an integer from 1 to 4096\n");
  EXPECT_EQ(Error({"--offset=-11"}),
            "continuo-test: --offset: \"-11\" is not an integer from -10 to 10\n");
  EXPECT_EQ(Error({"--rate=nan"}),
            "continuo-test: --rate: \"nan\" is not a number from 0 to 1000\n");
  EXPECT_EQ(Error({"--device=tpu"}), "continuo-test: --device: \"tpu\" is not one of cpu|cuda\n");
  EXPECT_EQ(Error({"--deterministic=maybe"}),
            "continuo-test: --deterministic: \"maybe\" is not true or false\n");
  EXPECT_THAT(Error({"--memory=4 apples"}),
              HasSubstr("--memory: \"4 apples\" is not a size from 1MiB"));
  EXPECT_THAT(Error({"--grace=1m"}), HasSubstr("\"1m\" is not a duration from 0 to 30s"));
  EXPECT_THAT(Error({"--listen=50051"}), HasSubstr("\"50051\" is not an address"));
  EXPECT_THAT(Error({"--workers=a,,b"}), HasSubstr("without empty items"));
  EXPECT_THAT(Error({"--temperature=-1"}), HasSubstr("from 0 to 100"));
}

TEST_F(FlagsTest, ABadVariableIsNamed) {
  env_ = {{"CONTINUO_MAX_RUNNING", "many\n"}};
  EXPECT_EQ(Error({}),
            "continuo-test: CONTINUO_MAX_RUNNING (environment): \"many\\n\" is not an integer "
            "from 1 to 4096\n");
}

TEST_F(FlagsTest, UnknownFlagsAndArgumentsAreRefused) {
  EXPECT_THAT(Error({"--max_runing=1"}), HasSubstr("--max_runing"));
  EXPECT_THAT(Error({"something"}), HasSubstr("something"));
}

TEST_F(FlagsTest, ARequiredFlagMayComeFromTheEnvironment) {
  flags_.Require("model");
  EXPECT_THAT(Error({}), HasSubstr("--model is needed: folder of the model"));
  env_ = {{"CONTINUO_MODEL", "/m"}};
  EXPECT_EQ(Parse({}), std::nullopt);
  EXPECT_EQ(v_.model, "/m");
}

TEST_F(FlagsTest, ABadValueIsToldBeforeAMissingFlag) {
  flags_.Require("model");
  EXPECT_THAT(Error({"--max_running=x"}), HasSubstr("--max_running"));
}

TEST_F(FlagsTest, HelpTellsTypeAndDefault) {
  EXPECT_EQ(Parse({"--help"}), 0);
  EXPECT_THAT(out_.str(),
              AllOf(HasSubstr("--max_running=INT"), HasSubstr("[256]"), HasSubstr("--memory=BYTES"),
                    HasSubstr("[1GiB]"), HasSubstr("--grace=DURATION"), HasSubstr("[5s]"),
                    HasSubstr("--device=cpu|cuda"), HasSubstr("CONTINUO_")));
}

TEST_F(FlagsTest, VersionIsTold) {
  EXPECT_EQ(Parse({"--version"}), 0);
  EXPECT_EQ(out_.str(), "continuo-test " + std::string(Version()) + "\n");
}

TEST(FlagsCommandsTest, ACommandHasItsOwnFlagsAndArguments) {
  std::string prompt, server = "a:1", mode = "b:2";
  Flags flags("continuo", "A client.");
  Flags& generate = flags.Subcommand("generate", "Generates.");
  generate.Text("server", &server, "address");
  generate.Positional("prompt", &prompt, /*required=*/true, "the prompt");
  Flags& bench = flags.Subcommand("bench", "Benches.");
  bench.Text("server", &mode, "address");
  const auto none = [](const char*) -> const char* { return nullptr; };
  std::ostringstream out, err;

  const char* good[] = {"continuo", "generate", "--server=x:1", "-"};
  EXPECT_EQ(flags.Parse(4, good, out, err, none), std::nullopt) << err.str();
  EXPECT_TRUE(generate.chosen());
  EXPECT_FALSE(bench.chosen());
  EXPECT_EQ(server, "x:1");
  EXPECT_EQ(mode, "b:2");
  EXPECT_EQ(prompt, "-");

  const char* help[] = {"continuo", "generate", "--help"};
  EXPECT_EQ(flags.Parse(3, help, out, err, none), 0);
  EXPECT_THAT(out.str(), HasSubstr("Usage: continuo generate [flags] PROMPT"));
}

TEST(FlagsCommandsTest, WithoutACommandTheyAreListed) {
  Flags flags("continuo", "A client.");
  flags.Subcommand("generate", "Generates.");
  const auto none = [](const char*) -> const char* { return nullptr; };
  std::ostringstream out, err;
  const char* nothing[] = {"continuo"};
  EXPECT_EQ(flags.Parse(1, nothing, out, err, none), 2);
  EXPECT_EQ(err.str(), "continuo: a command is needed: generate; see --help\n");
  const char* unknown[] = {"continuo", "generat"};
  EXPECT_EQ(flags.Parse(2, unknown, out, err, none), 2);
}

TEST(ParseBytesTest, TakesUnitsAndPlainBytes) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("1000"), 1000);
  EXPECT_EQ(*ParseBytes("64KiB"), 65536);
  EXPECT_EQ(*ParseBytes("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(*ParseBytes("2mb"), 2'000'000);
}

TEST(ParseBytesTest, RefusesTheRest) {
  for (const char* text : {"", "GiB", "-1", "-1GiB", "1.5", "nanGiB", "infGiB", "4G", "1 GiB x",
                           "99999999999GiB", "1e30TiB", "18446744073709551616"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(FormatBytesTest, TakesTheLargestUnitThatFits) {
  EXPECT_EQ(FormatBytes(0), "0");
  EXPECT_EQ(FormatBytes(1000), "1000");
  EXPECT_EQ(FormatBytes(uint64_t{4} << 30), "4GiB");
  EXPECT_EQ(FormatBytes(1536 * 1024), "1536KiB");
}

TEST(ParseDurationTest, NeedsAUnitAndIsNotNegative) {
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(*ParseDuration("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseDuration("inf"), absl::InfiniteDuration());
  for (const char* text : {"", "5", "-5s", "-inf", "s", "5 s", "five"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(OptionalAddressTest, MayBeEmptyButNotBad) {
  std::string value = "host:1";
  Flags flags("program", "");
  flags.OptionalAddress("endpoint", &value, "somewhere");
  const char* const empty[] = {"program", "--endpoint="};
  EXPECT_EQ(flags.Parse(2, empty), std::nullopt);
  EXPECT_EQ(value, "");
  const char* const good[] = {"program", "--endpoint=collector:4317"};
  EXPECT_EQ(flags.Parse(2, good), std::nullopt);
  EXPECT_EQ(value, "collector:4317");
  const char* const bad[] = {"program", "--endpoint=collector"};
  EXPECT_EQ(flags.Parse(2, bad), 2);
}

TEST(ValidateAddressTest, KnowsHostsPortsAndSockets) {
  for (const char* text : {"0.0.0.0:50051", "localhost:0", "[::1]:65535", "unix:/tmp/x"}) {
    EXPECT_TRUE(ValidateAddress(text).ok()) << text;
  }
  for (const char* text : {"", ":1", "host", "host:", "host:65536", "host:-1", "host:1x", "::1:5",
                           "[]:1", "unix:", "a b:1", "host:99999999999"}) {
    EXPECT_FALSE(ValidateAddress(text).ok()) << text;
  }
}

}  // namespace
}  // namespace continuo::common
