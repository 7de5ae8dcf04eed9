// SPDX-License-Identifier: Apache-2.0
// Shows exactness as a whole: runs random schedules on a real model and compares each request with
// the same request alone, tokens and log-probabilities bit by bit, in every format and on every
// instruction set.
//
//   worker_engine_exact_schedules_test --schedules=10000 [--first_seed=N] [--model=DIR]
//       [--json=FILE] [--gtest_filter=…]
//
// runs that many schedules, in equal numbers for each format and instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/device.h"
#include "nlohmann/json.hpp"
#include "services/worker/model/description/family.h"
#include "tests/testing/shared_data.h"
#include "tests/testing/temp_folder.h"
#include "tests/testing/tiny_adapter.h"
#include "tests/testing/tiny_model.h"
#include "tests/worker/engine/real_model.h"
#include "tests/worker/engine/simulation.h"
#include "tests/worker/model/quantised_model.h"

namespace continuo::engine {
namespace {

struct Format {
  const char* name;
  const char* weights;
  const char* kv_dtype;
};
constexpr Format kFormats[] = {
    {"fp32", "fp32", "auto"},         {"bf16", "bf16", "auto"},
    {"int8", "int8", "auto"},         {"int4", "int4", "auto"},
    {"fp32_kv_int8", "fp32", "int8"}, {"bf16_kv_int8", "bf16", "int8"},
    {"int8_kv_int8", "int8", "int8"}, {"int4_kv_int8", "int4", "int8"},
};

struct Flags {
  int schedules = 0;  // 0: kFew in each case
  uint32_t first_seed = 1;
  std::string model = testing::SourcePath("deploy/demo-model");
  std::string json;
};
Flags flags;
constexpr int kFew = 2;
nlohmann::json report = nlohmann::json::array();

// Returns the instruction sets that this build and machine have.
std::vector<std::string> Isas() {
  std::vector<std::string> isas;
  for (const char* isa : {"scalar", "avx2", "avx512", "avx512_bf16", "neon"}) {
    if (kernels::MakeDevice({.isa = isa}).ok()) isas.emplace_back(isa);
  }
  return isas;
}

struct Case {
  std::string isa;
  Format format;

  std::string Name() const { return absl::StrCat(isa, "_", format.name); }
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.Name(); }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& isa : Isas()) {
    for (const Format& format : kFormats) cases.push_back({isa, format});
  }
  return cases;
}

uint32_t NumSchedules() {
  if (flags.schedules == 0) return kFew;
  const size_t cases = Cases().size();
  return static_cast<uint32_t>((static_cast<size_t>(flags.schedules) + cases - 1) / cases);
}

class ExactSchedulesTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExactSchedulesTest, EveryAnswerIsThatOfTheRequestAlone) {
  const auto& [isa, format] = GetParam();
  const auto model =
      RealModel::Load({.source = {.dir = flags.model},
                       .precision = {.weights = format.weights, .kv_dtype = format.kv_dtype},
                       .device = {.isa = isa}});
  ASSERT_TRUE(model.ok()) << model.status();
  SimulationTally tally;
  const uint32_t first = flags.first_seed, count = NumSchedules();
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const std::string failure = Simulation(seed, &tally, model->get()).Run();
    EXPECT_EQ(failure, "") << isa << " " << format.name << ", seed " << seed;
  }
  nlohmann::json ranks;
  for (const auto& [size, schedules] : (*model)->num_schedules()) {
    ranks[absl::StrCat(size)] = schedules;
  }
  report.push_back({{"isa", isa},
                    {"format", format.name},
                    {"failed", HasFailure()},
                    {"first_seed", first},
                    {"schedules", count},
                    {"schedules_by_ranks", ranks},
                    {"requests", tally.requests},
                    {"tokens", tally.tokens},
                    {"scores", tally.scores},
                    {"prompt_scores", tally.prompt_scores},
                    {"steps", tally.steps},
                    {"rows", tally.rows},
                    {"preemptions", tally.preemptions},
                    {"prefix_hit_tokens", tally.hit_tokens},
                    {"forks", tally.forked},
                    {"continuations", tally.continued},
                    {"cancelled", tally.cancelled},
                    {"drafts", tally.drafts},
                    {"right_drafts", tally.right_drafts},
                    {"constrained", tally.constrained}});
  if (!flags.json.empty()) std::ofstream(flags.json) << report.dump(1) << "\n";
  if (count < 200) return;
  // The schedules must have met everything that they are to show.
  for (const int64_t met :
       {tally.preemptions, tally.hit_tokens, tally.copies, tally.cancelled, tally.continued,
        tally.forked, tally.masked, tally.prompt_scores, tally.right_drafts,
        tally.drafts - tally.right_drafts, tally.constrained}) {
    EXPECT_GT(met, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ExactSchedulesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.Name(); });

// Tiny models of every family, on the instruction set that workers take.
class ExactFamiliesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ExactFamiliesTest, EveryAnswerIsThatOfTheRequestAlone) {
  const testing::TinyModel files({.family = GetParam(), .context_length = 1024});
  for (const char* weights : {"fp32", "int8"}) {
    const auto model =
        RealModel::Load({.source = {.dir = files.dir()}, .precision = {.weights = weights}});
    ASSERT_TRUE(model.ok()) << model.status();
    SimulationTally tally;
    const uint32_t first = flags.first_seed;
    for (uint32_t seed = first; seed < first + 2; ++seed) {
      EXPECT_EQ(Simulation(seed, &tally, model->get()).Run(), "") << weights << ", seed " << seed;
    }
    EXPECT_GT(tally.tokens + tally.states, 0);
  }
}

// The model_type of each family of the registry.
std::vector<std::string> FamilyTypes() {
  std::vector<std::string> types;
  for (const model::Family& family : model::Families()) types.emplace_back(family.model_type);
  return types;
}

INSTANTIATE_TEST_SUITE_P(Families, ExactFamiliesTest, ::testing::ValuesIn(FamilyTypes()),
                         [](const auto& info) { return info.param; });

// Checkpoints whose integers are computed with as they are stored.
class ExactStoredTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ExactStoredTest, EveryAnswerIsThatOfTheRequestAlone) {
  SimulationTally tally;
  for (const std::string& format : testing::QuantisedFormats()) {
    if (!testing::KeepsIntegers(format)) continue;
    const testing::QuantisedModel files(
        {.format = format, .intermediate_size = 128, .context_length = 1024});
    const auto model = RealModel::Load({.source = {.dir = files.dir()},
                                        .precision = {.weights = "stored"},
                                        .device = {.isa = GetParam()}});
    ASSERT_TRUE(model.ok()) << model.status();
    const uint32_t first = flags.first_seed;
    for (uint32_t seed = first; seed < first + 4; ++seed) {
      EXPECT_EQ(Simulation(seed, &tally, model->get()).Run(), "") << format << ", seed " << seed;
    }
  }
  EXPECT_GT(tally.tokens, 100);
}

INSTANTIATE_TEST_SUITE_P(Isas, ExactStoredTest, ::testing::ValuesIn(Isas()),
                         [](const auto& info) { return info.param; });

// Encoders, by model_type; Gemma 3's text model is one where its configuration says so.
class ExactEncodersTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ExactEncodersTest, EveryVectorIsThatOfTheTextAlone) {
  testing::TinyModelOptions options = {.family = GetParam(), .context_length = 1024};
  if (GetParam() == "gemma3_text")
    options.extra_config = R"({"use_bidirectional_attention": true})";
  const testing::TinyModel files(options);
  for (const char* weights : {"fp32", "bf16", "int8"}) {
    const auto model =
        RealModel::Load({.source = {.dir = files.dir()}, .precision = {.weights = weights}});
    ASSERT_TRUE(model.ok()) << model.status();
    SimulationTally tally;
    const uint32_t first = flags.first_seed;
    for (uint32_t seed = first; seed < first + 6; ++seed) {
      EXPECT_EQ(Simulation(seed, &tally, model->get()).Run(), "") << weights << ", seed " << seed;
    }
    EXPECT_GT(tally.states, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(Encoders, ExactEncodersTest,
                         ::testing::Values("bert", "roberta", "modernbert", "gemma3_text"),
                         [](const auto& info) { return info.param; });

// The module for multi-token prediction drafts: with random weights it is hardly ever right.
TEST(ExactMtpTest, EveryAnswerIsThatOfTheRequestAlone) {
  for (const char* family : {"qwen3_5_text", "qwen3_5_moe_text"}) {
    const testing::TinyModel files({.family = family, .context_length = 1024, .mtp = true});
    const auto model = RealModel::Load({.source = {.dir = files.dir()}, .reads_mtp = true});
    ASSERT_TRUE(model.ok()) << model.status();
    SimulationTally tally;
    const uint32_t first = flags.first_seed;
    for (uint32_t seed = first; seed < first + 8; ++seed) {
      EXPECT_EQ(Simulation(seed, &tally, model->get()).Run(), "") << family << ", seed " << seed;
    }
    EXPECT_GT(tally.drafts, 8) << family;
  }
}

// Requests of some adapters, and of none.
TEST(ExactAdaptersTest, EveryAnswerIsThatOfTheRequestAlone) {
  for (const char* family : {"llama", "phi3"}) {
    const testing::TinyModel files({.family = family, .context_length = 1024});
    const testing::TempFolder folder;
    std::vector<model::AdapterSource> adapters;
    for (int i = 0; i < 5; ++i) {
      adapters.push_back({absl::StrCat(i), (folder.path() / absl::StrCat(i)).string()});
      testing::WriteTinyAdapter(files.dir(), adapters.back().dir,
                                {.rank = 3 + 4 * i, .seed = static_cast<uint64_t>(i)});
    }
    for (const char* weights : {"fp32", "int8"}) {
      const auto model = RealModel::Load({.source = {.dir = files.dir()},
                                          .precision = {.weights = weights},
                                          .adapters = adapters});
      ASSERT_TRUE(model.ok()) << model.status();
      SimulationTally tally;
      const uint32_t first = flags.first_seed;
      const auto count = static_cast<uint32_t>(flags.schedules == 0 ? 8 : flags.schedules);
      for (uint32_t seed = first; seed < first + count; ++seed) {
        EXPECT_EQ(Simulation(seed, &tally, model->get()).Run(), "") << weights << ", seed " << seed;
      }
      EXPECT_GT(tally.adapted, 8) << family;
      EXPECT_LT(tally.adapted, tally.requests) << family;
    }
  }
}

// Returns false if an argument is unknown.
bool ParseFlags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--schedules=")) {
      if (!absl::SimpleAtoi(argument, &flags.schedules)) return false;
    } else if (absl::ConsumePrefix(&argument, "--first_seed=")) {
      if (!absl::SimpleAtoi(argument, &flags.first_seed)) return false;
    } else if (absl::ConsumePrefix(&argument, "--model=")) {
      flags.model = std::string(argument);
    } else if (absl::ConsumePrefix(&argument, "--json=")) {
      flags.json = std::string(argument);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace continuo::engine

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  if (!continuo::engine::ParseFlags(argc, argv)) {
    std::cerr << "usage: [--schedules=N] [--first_seed=N] [--model=DIR] [--json=FILE]\n";
    return 2;
  }
  return RUN_ALL_TESTS();
}
