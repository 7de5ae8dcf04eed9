// SPDX-License-Identifier: Apache-2.0
// Small trained models and a random one against float64 references: greedy ids, full logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <ostream>
#include <span>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/worker/model/load/model_loader.h"
#include "tests/testing/shared_data.h"
#include "tests/worker/model/model_harness.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo::testing {
namespace {

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

std::vector<float> ReadFloats(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

struct GreedyCase {
  std::vector<int32_t> prompt, answer;
};

std::vector<GreedyCase> ReadCases(const nlohmann::json& golden) {
  std::vector<GreedyCase> cases;
  for (const nlohmann::json& json : golden["cases"]) {
    cases.push_back({json["prompt_ids"].get<std::vector<int32_t>>(),
                     json["greedy_ids"].get<std::vector<int32_t>>()});
  }
  return cases;
}

void NoMask(std::span<uint32_t>) { FAIL() << "no sample is masked"; }

// Runs all cases as one batch, prompts in chunks of `chunk`, each until its golden answer ends.
void ExpectGreedy(model::Executor& executor, const std::vector<GreedyCase>& cases, int chunk,
                  int max_blocks) {
  const model::SamplingParams greedy = {.temperature = 0};
  std::vector<std::vector<int32_t>> tokens, answers(cases.size());
  for (const GreedyCase& one : cases) tokens.push_back(one.prompt);
  std::vector<int> done(cases.size(), 0);
  while (true) {
    PlanBuilder builder(/*block_size=*/16, max_blocks);
    std::vector<size_t> sampled;  // which case each sample belongs to
    for (size_t i = 0; i < cases.size(); ++i) {
      if (answers[i].size() == cases[i].answer.size()) continue;
      const int n = std::min(chunk, static_cast<int>(tokens[i].size()) - done[i]);
      const auto rows =
          std::span(tokens[i]).subspan(static_cast<size_t>(done[i]), static_cast<size_t>(n));
      const bool last = done[i] + n == static_cast<int>(tokens[i].size());
      builder.Add(static_cast<int>(i), done[i], rows, last ? LastOf(rows) : std::vector<int32_t>{},
                  greedy);
      done[i] += n;
      if (last) sampled.push_back(i);
    }
    if (builder.plan().num_rows() == 0) break;
    const auto result = executor.Run(builder.plan(), NoMask);
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->token_ids.size(), sampled.size());
    for (size_t s = 0; s < sampled.size(); ++s) {
      answers[sampled[s]].push_back(result->token_ids[s]);
      tokens[sampled[s]].push_back(result->token_ids[s]);
    }
  }
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(answers[i], cases[i].answer) << "case " << i;
}

const std::string kModels[] = {"stories260K", "babyllama105"};

// The ways of running a model. Each is a test of its own, so that none is long under
// ThreadSanitizer.
struct Way {
  std::string isa;
  int ranks = 1;

  std::string Name() const {
    return absl::StrCat(isa, "_", ranks, ranks == 1 ? "_rank" : "_ranks");
  }
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.Name(); }
};

// Every instruction set, and ranks on one: they change no bit (exact_bits_test).
std::vector<Way> Ways() {
  std::vector<Way> ways;
  for (const std::string& isa : UsableIsas()) ways.push_back({isa});
  ways.push_back({ways.back().isa, /*ranks=*/4});
  return ways;
}

class GoldenGreedyTest : public ::testing::TestWithParam<std::tuple<std::string, Way>> {};

TEST_P(GoldenGreedyTest, IdsAreEqual) {
  const auto& [name, way] = GetParam();
  const std::string dir = SharedPath(absl::StrCat("data/models/", name, "/hf"));
  CONTINUO_NEED_SHARED(absl::StrCat("data/models/", name, "/hf"));
  const std::vector<GreedyCase> cases =
      ReadCases(ReadJson(SharedPath(absl::StrCat("data/goldens/", name, ".json"))));
  ASSERT_FALSE(cases.empty());
  model::LoadOptions options;
  options.source.dir = dir;
  options.device.isa = way.isa;
  options.tensor_parallel = way.ranks;
  options.precision.weights = "fp32";
  const int max_blocks = model::ReadModelConfig(dir)->context_length / options.kv.block_size;
  options.kv.num_blocks = max_blocks * static_cast<int>(cases.size());
  auto loaded = model::LoadModel(options);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectGreedy(*loaded->executor, cases, way.ranks == 1 ? 512 : 7, max_blocks);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGreedyTest,
                         ::testing::Combine(::testing::ValuesIn(kModels),
                                            ::testing::ValuesIn(Ways())),
                         [](const auto& info) {
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               std::get<1>(info.param).Name());
                         });

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, FullLogitsOfOnePromptMatch) {
  const std::string name = GetParam();
  CONTINUO_NEED_SHARED("data/goldens/" + name + ".json");
  const nlohmann::json golden = ReadJson(SharedPath("data/goldens/" + name + ".json"));
  const std::vector<float> expected =
      ReadFloats(SharedPath("data/goldens/" + golden["logits_file"].get<std::string>()));
  const auto& one = golden["cases"][golden["logits_prompt_index"].get<size_t>()];
  const auto prompt = one["prompt_ids"].get<std::vector<int32_t>>();
  for (const std::string& isa : UsableIsas()) {
    auto harness = ModelHarness::Make(SharedPath("data/models/" + name + "/hf"), {.isa = isa});
    ASSERT_TRUE(harness.ok()) << harness.status();
    PlanBuilder builder(16, 4);
    builder.Add(0, 0, prompt, AllOf(prompt));
    const std::vector<float> logits = (*harness)->Run(builder.plan());
    ASSERT_EQ(logits.size(), expected.size());
    double error = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    EXPECT_LE(error, 1e-4) << isa;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return info.param; });

TEST(PagedInferTinyLlamaTest, LogitsMatch) {
  CONTINUO_NEED_SHARED("data/models/paged_infer_tiny_llama/tiny_llama.safetensors");
  const std::string source = SharedPath("data/models/paged_infer_tiny_llama/");
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / ("paged_infer_" + std::to_string(getpid()));
  std::filesystem::create_directories(dir);
  std::filesystem::create_symlink(std::filesystem::absolute(source + "tiny_llama.safetensors"),
                                  dir / "model.safetensors");
  std::filesystem::create_symlink(std::filesystem::absolute(source + "config.json"),
                                  dir / "config.json");
  std::vector<int32_t> tokens;
  std::ifstream meta(source + "tiny_llama_meta.txt");
  for (std::string line; std::getline(meta, line);) {
    if (line.rfind("tokens=", 0) != 0) continue;
    std::istringstream list(line.substr(7));
    for (std::string id; std::getline(list, id, ',');) tokens.push_back(std::stoi(id));
  }
  ASSERT_EQ(tokens.size(), 40u);
  const std::vector<float> expected = ReadFloats(source + "tiny_llama_golden.bin");
  auto harness = ModelHarness::Make(dir.string(), {});
  ASSERT_TRUE(harness.ok()) << harness.status();
  PlanBuilder builder(16, 4);
  builder.Add(0, 0, tokens, AllOf(tokens));
  const std::vector<float> logits = (*harness)->Run(builder.plan());
  ASSERT_EQ(logits.size(), expected.size());
  double error = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(logits[i]) - expected[i]));
  }
  EXPECT_LE(error, 1e-4);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace continuo::testing
