// SPDX-License-Identifier: Apache-2.0
// score_tokens --model=DIR [--device=cuda:0] [--weights=auto] [--kv_dtype=auto] <IDS
// Prints the log-probability of every token of some sequences but the first, each after those
// before it: JSON [[id, …], …] to [[logprob, …], …]. Sequences share all steps: chunks of 64 rows,
// and of the last quarter row by row. tests/gpu/hf_scores.py runs it.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "services/worker/model/load/model_loader.h"
#include "tests/worker/model/run/plan_builder.h"

namespace continuo {
namespace {

constexpr int kChunk = 64;

int Main(int argc, char** argv) {
  model::LoadOptions options;
  options.device.device = "cuda:0";
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (absl::ConsumePrefix(&arg, "--model=")) {
      options.source.dir = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--device=")) {
      options.device.device = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--weights=")) {
      options.precision.weights = std::string(arg);
    } else if (absl::ConsumePrefix(&arg, "--kv_dtype=")) {
      options.precision.kv_dtype = std::string(arg);
    } else {
      std::fprintf(stderr, "score_tokens does not know %s\n", argv[i]);
      return 2;
    }
  }
  const auto sequences = nlohmann::json::parse(std::cin).get<std::vector<std::vector<int32_t>>>();
  size_t longest = 0;
  for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
  const int max_blocks = static_cast<int>(longest) / options.kv.block_size + 1;
  options.source.max_context_tokens = static_cast<int>(longest);
  options.kv.num_blocks = max_blocks * static_cast<int>(sequences.size());
  options.max_batch_tokens = kChunk * static_cast<int>(sequences.size());
  auto model = model::LoadModel(options);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  std::vector<std::vector<float>> scores(sequences.size());
  model::SamplingParams params;
  params.num_logprobs = 0;
  const size_t alone = longest - longest / 4;
  for (size_t begin = 0; begin + 1 < longest;) {
    const size_t end = std::min({begin + (begin < alone ? kChunk : 1), longest - 1});
    testing::PlanBuilder builder(options.kv.block_size, max_blocks);
    std::vector<size_t> scored;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const std::vector<int32_t>& tokens = sequences[s];
      if (begin + 1 >= tokens.size()) continue;
      const size_t stop = std::min(end, tokens.size() - 1);
      const std::span<const int32_t> rows(tokens.data() + begin, stop - begin);
      builder.Add(static_cast<int>(s), static_cast<int>(begin), rows, testing::AllOf(rows), params);
      model::StepPlan& plan = builder.plan();
      for (size_t i = begin; i < stop; ++i) {
        plan.sample_targets[plan.sample_targets.size() - (stop - i)] = tokens[i + 1];
        scored.push_back(s);
      }
    }
    const auto result = model->executor->Run(builder.plan(), [](std::span<uint32_t>) {});
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
      return 1;
    }
    for (size_t i = 0; i < scored.size(); ++i) {
      scores[scored[i]].push_back(result->scores[i].logprob);
    }
    begin = end;
  }
  std::cout << nlohmann::json(scores) << "\n";
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
