// SPDX-License-Identifier: Apache-2.0
// Whole steps of a model, greedy: step_bench --model=DIR [--threads=N] [--tensor_parallel=N]
// [--isa=SET] [--weights=TYPE] [--device=cuda:0] [--deterministic].
// decode/B: one row of each of B sequences with 128 tokens in the cache. prefill/R: R rows of one
// prompt. Decode is bound by reading the weights once: bytes_per_second counts those.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "services/worker/model/loader.h"
#include "tests/worker/model/plan_builder.h"

namespace continuo::testing {
namespace {

constexpr int kBlockSize = 16;
constexpr int kMaxBlocks = 64;
constexpr int kCached = 128;

void RunPlan(benchmark::State& state, LoadedModel& model, const StepPlan& plan) {
  // The first step of its kind touches KV cache and activations for the first time.
  if (!model.executor->Run(plan, [](std::span<uint32_t>) {}).ok()) return;
  for (auto _ : state) {
    auto result = model.executor->Run(plan, [](std::span<uint32_t>) {});
    if (!result.ok()) state.SkipWithError("the step failed");
  }
  int64_t bytes = 0;
  for (const RankMemory& rank : model.ranks) bytes += rank.weight_bytes;
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * plan.num_rows()), benchmark::Counter::kIsRate);
}

StepPlan DecodePlan(int batch) {
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  for (int i = 0; i < batch; ++i) {
    const std::vector<int32_t> token = {i + 1};
    builder.Add(i, kCached, token, LastOf(token), {.temperature = 0});
  }
  return builder.plan();
}

StepPlan PrefillPlan(int rows) {
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % 256);
  PlanBuilder builder(kBlockSize, kMaxBlocks);
  builder.Add(0, 0, tokens, LastOf(tokens), {.temperature = 0});
  return builder.plan();
}

int Main(int argc, char** argv) {
  LoadOptions options;
  options.max_context_tokens = kBlockSize * kMaxBlocks;
  options.num_blocks = 32 * kMaxBlocks;
  options.max_batch_tokens = 512;
  const auto value = [](const std::string& arg, const std::string& flag) {
    return arg.rfind(flag, 0) == 0 ? arg.substr(flag.size()) : std::string();
  };
  for (int i = 1; i < argc; ++i) {
    if (const std::string v = value(argv[i], "--model="); !v.empty()) options.dir = v;
    if (const std::string v = value(argv[i], "--device="); !v.empty()) options.device = v;
    if (std::string(argv[i]) == "--deterministic") options.deterministic = true;
    if (const std::string v = value(argv[i], "--isa="); !v.empty()) options.isa = v;
    if (const std::string v = value(argv[i], "--weights="); !v.empty()) options.weights = v;
    if (const std::string v = value(argv[i], "--threads="); !v.empty()) {
      options.threads = std::atoi(v.c_str());
    }
    if (const std::string v = value(argv[i], "--tensor_parallel="); !v.empty()) {
      options.tensor_parallel = std::atoi(v.c_str());
    }
  }
  auto model = LoadExecutor(options);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  benchmark::Initialize(&argc, argv);
  for (const int batch : {1, 4, 16, 32}) {
    benchmark::RegisterBenchmark(
        ("decode/" + std::to_string(batch)).c_str(),
        [&model, batch](benchmark::State& s) { RunPlan(s, *model, DecodePlan(batch)); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  for (const int rows : {64, 512}) {
    benchmark::RegisterBenchmark(
        ("prefill/" + std::to_string(rows)).c_str(),
        [&model, rows](benchmark::State& s) { RunPlan(s, *model, PrefillPlan(rows)); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace continuo::testing

int main(int argc, char** argv) { return continuo::testing::Main(argc, argv); }
