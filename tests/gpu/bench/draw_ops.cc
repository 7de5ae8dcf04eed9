// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/ops_source.h"

namespace continuo {
namespace {

constexpr int64_t kVocabulary = 151936;

// As models' are: a few large ones, the others far below.
kernels::Tensor LogitsOf(OpsSource& s, int64_t rows) {
  constexpr int64_t kLarge = 50;
  const kernels::Tensor logits = s.Zeros(kernels::DType::kF32, {rows, kVocabulary, 1});
  std::vector<float> row(kVocabulary);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < kVocabulary; ++i) {
      const auto place = (i * 7919 + r) % kVocabulary;
      row[static_cast<size_t>(i)] = place < kLarge ? -0.3f * static_cast<float>(place)
                                                   : -20 - static_cast<float>(place) * 0x1p-16f;
    }
    kernels::Tensor one = logits;
    one.shape[0] = 1;
    one.data = static_cast<float*>(logits.data) + r * kVocabulary;
    s.b.CopyIn(one, row.data());
    EndOnFailure(s.b.Synchronize());
  }
  return logits;
}

Calls DrawsOf(OpsSource& s, std::vector<kernels::TokenDraw> draws) {
  const auto rows = static_cast<int64_t>(draws.size());
  const kernels::Tensor logits = LogitsOf(s, rows),
                        tokens = s.Zeros(kernels::DType::kI32, {rows, 1, 1});
  const std::span<kernels::DrawnToken> drawn = s.Drawn(draws.size());
  return {[=, &s, draws = std::move(draws)] {
    if (!s.b.DrawTokens(drawn, tokens, logits, {}, {.draws = draws})) {
      EndOnFailure(absl::UnimplementedError("the device does not draw tokens"));
    }
  }};
}

}  // namespace

// What has to be read is the logits. The host's time counts: calls are enqueued one by one.
void AddDraws(OpsSource& s) {
  for (const auto& [name, draw] : std::vector<std::pair<std::string, kernels::TokenDraw>>{
           {"greedy", {.temperature = 0}},
           {"plain", {.uniform = 0.7}},
           {"top_k 50", {.uniform = 0.7, .temperature = 0.2f, .top_k = 50}},
           {"top_p 0.95", {.uniform = 0.7, .top_p = 0.95f}},
           {"top_k 20, top_p 0.95",
            {.uniform = 0.7, .temperature = 0.6f, .top_k = 20, .top_p = 0.95f}},
           {"greedy, 5 logprobs", {.temperature = 0, .num_alternatives = 5}}}) {
    for (const int64_t rows : {1, 16, 64}) {
      std::vector<kernels::TokenDraw> draws(static_cast<size_t>(rows), draw);
      for (int64_t r = 0; r < rows; ++r) {
        draws[static_cast<size_t>(r)].row = static_cast<int32_t>(r);
      }
      s.Add({.group = "draws",
             .name = "DrawTokens " + name + ", rows " + std::to_string(rows),
             .bytes = 4.0 * static_cast<double>(rows * kVocabulary),
             .make = [=, &s] { return DrawsOf(s, draws); },
             .repeats = false,
             .ceilings = {kReading}});
    }
  }
}

}  // namespace continuo
