// SPDX-License-Identifier: Apache-2.0
// Measures the scheduler itself, without any model: Schedule, Commit and Deliver of a step in which
// every sequence decodes one token (goal: 20 µs at 64 sequences, 200 µs at 1,024), and of requests
// that find nothing in a full prefix cache, beside the same requests that bypass it (goal: 0.5 % of
// what their tokens cost a model), and of 16 sequences over a large vocabulary whose constraints
// cost nothing themselves, beside the same ones without. --benchmark_format=json writes JSON.
#include <benchmark/benchmark.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "services/worker/engine/schedule/scheduler.h"

namespace continuo {
namespace {

constexpr int kVocab = 32000;

void Submit(engine::Scheduler& scheduler, engine::RequestId id, int prompt_tokens, bool penalty,
            bool bypass_cache = false, int max_tokens = 4000) {
  engine::Request request;
  request.id = id;
  request.cache_bypass = bypass_cache;
  for (int i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>((id * 7919 + i * 31) % kVocab));
  }
  request.max_tokens = max_tokens;
  request.stop_ids = {2};
  if (penalty) request.sampling.frequency_penalty = 0.5f;
  int64_t* tokens = new int64_t(0);
  scheduler.Add(std::move(request),
                [tokens = std::unique_ptr<int64_t>(tokens)](engine::RequestEvent event) {
                  for (const engine::SequenceDelta& delta : event.deltas)
                    *tokens += delta.tokens.size();
                },
                absl::ZeroDuration(), {});
}

// Arguments: sequences, prompt tokens of each, whether a penalty is set.
void BM_DecodeStep(benchmark::State& state) {
  const int batch = static_cast<int>(state.range(0));
  const int prompt = static_cast<int>(state.range(1));
  engine::EngineOptions options;
  options.block_size = 16;
  options.num_blocks = batch * (prompt + 4032) / 16;
  options.vocab_size = kVocab;
  options.max_batch_tokens = 8192;
  options.max_prefill_chunk = 8192;
  options.max_running = batch;
  engine::EngineMetrics metrics;
  engine::Moment now;
  const auto restart = [&] {
    auto scheduler = std::make_unique<engine::Scheduler>(options, &metrics);
    for (int i = 0; i < batch; ++i) Submit(*scheduler, i + 1, prompt, state.range(2) != 0);
    return scheduler;
  };
  int32_t next = 3;
  const auto step = [&](engine::Scheduler& scheduler) {
    const model::StepPlan& plan = scheduler.Schedule(now);
    const int samples = plan.num_samples();
    scheduler.Deliver();
    model::StepResult result;
    result.token_ids.assign(samples, next);
    result.scores.resize(samples);
    next = next % 30000 + 3;
    now.elapsed += absl::Microseconds(10);
    const absl::Status status = scheduler.Commit(std::move(result), now, absl::Microseconds(10));
    if (!status.ok()) state.SkipWithError("commit failed");
    scheduler.Deliver();
    return samples;
  };
  std::unique_ptr<engine::Scheduler> scheduler;
  int generated = 1 << 20;
  for (auto _ : state) {
    if (generated > 2048) {
      state.PauseTiming();
      scheduler = restart();
      while (step(*scheduler) < batch || scheduler->num_waiting() > 0) {
      }
      for (int i = 0; i < 20; ++i) step(*scheduler);
      generated = 0;
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(step(*scheduler));
    ++generated;
  }
}
BENCHMARK(BM_DecodeStep)
    ->ArgNames({"batch", "prompt", "penalty"})
    ->Args({1, 512, 0})
    ->Args({64, 32, 0})
    ->Args({64, 512, 0})
    ->Args({64, 4096, 0})
    ->Args({64, 512, 1})
    ->Args({256, 512, 0})
    ->Args({1024, 512, 0})
    ->Unit(benchmark::kMicrosecond);

// Arguments: prompt tokens, whether the cache is bypassed. Measures a request with an answer of one
// token.
void BM_UnknownPrompt(benchmark::State& state) {
  const int prompt = static_cast<int>(state.range(0));
  engine::EngineOptions options;
  options.block_size = 16;
  options.num_blocks = 64 * (prompt / 16 + 2);
  options.vocab_size = kVocab;
  options.max_batch_tokens = 8192;
  options.max_prefill_chunk = 8192;
  options.max_running = 16;
  engine::EngineMetrics metrics;
  engine::Moment now;
  engine::Scheduler scheduler(options, &metrics);
  engine::RequestId id = 0;
  const auto run = [&] {
    Submit(scheduler, ++id, prompt, false, state.range(1) != 0, 1);
    while (!scheduler.idle()) {  // the first ones take several steps
      const int samples = scheduler.Schedule(now).num_samples();
      scheduler.Deliver();
      model::StepResult result;
      result.token_ids.assign(samples, 3);
      result.scores.resize(samples);
      now.elapsed += absl::Microseconds(10);
      const absl::Status status = scheduler.Commit(std::move(result), now, absl::Microseconds(10));
      scheduler.Deliver();
      if (!status.ok()) return state.SkipWithError("commit failed");
    }
  };
  for (int i = 0; i < 256; ++i) run();  // fills the pool
  for (auto _ : state) run();
}
BENCHMARK(BM_UnknownPrompt)
    ->ArgNames({"prompt", "bypass"})
    ->ArgsProduct({{128, 512, 4096}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

// Allows the same ids everywhere.
class FixedConstraint : public engine::TokenConstraint {
 public:
  explicit FixedConstraint(const std::vector<uint32_t>* allowed) : allowed_(*allowed) {}
  bool Restricts() override { return true; }
  void FillMask(std::span<uint32_t> mask) override {
    for (size_t i = 0; i < mask.size(); ++i) mask[i] &= allowed_[i];
  }
  bool CanEnd() override { return true; }
  bool MustEnd() override { return false; }
  bool Accept(int32_t) override { return true; }
  void Rollback(int) override {}
  absl::Status status() override { return absl::OkStatus(); }

 private:
  const std::vector<uint32_t>& allowed_;
};

// Argument: whether the sequences have constraints. Measures Schedule, FillMask, Commit and
// Deliver.
void BM_ConstrainedStep(benchmark::State& state) {
  constexpr int kBatch = 16, kLargeVocab = 151'936;
  const std::vector<uint32_t> allowed((kLargeVocab + 31) / 32, 0x11111111);
  std::vector<uint32_t> mask(kBatch * allowed.size());
  engine::EngineOptions options;
  options.num_blocks = kBatch * 256;
  options.vocab_size = kLargeVocab;
  engine::EngineMetrics metrics;
  engine::Moment now;
  std::unique_ptr<engine::Scheduler> scheduler;
  const auto step = [&] {
    const model::StepPlan& plan = scheduler->Schedule(now);
    const int samples = plan.num_samples();
    scheduler->Deliver();
    if (state.range(0) != 0 && samples > 0) {
      scheduler->FillMask(std::span(mask).first(static_cast<size_t>(samples) * allowed.size()));
    }
    model::StepResult result;
    result.token_ids.assign(static_cast<size_t>(samples), 4);
    result.scores.resize(static_cast<size_t>(samples));
    now.elapsed += absl::Microseconds(10);
    const absl::Status status = scheduler->Commit(std::move(result), now, absl::Microseconds(10));
    if (!status.ok()) state.SkipWithError("commit failed");
    scheduler->Deliver();
    return samples;
  };
  int generated = 1 << 20;
  for (auto _ : state) {
    if (generated > 2048) {
      state.PauseTiming();
      scheduler = std::make_unique<engine::Scheduler>(options, &metrics);
      for (int i = 0; i < kBatch; ++i) {
        engine::Request request;
        request.id = static_cast<engine::RequestId>(i) + 1;
        request.prompt.assign(32, i);
        request.max_tokens = 4000;
        request.stop_ids = {2};
        if (state.range(0) != 0) {
          request.constraints.push_back(std::make_shared<FixedConstraint>(&allowed));
        }
        scheduler->Add(
            std::move(request), [](engine::RequestEvent) {}, absl::ZeroDuration(), now);
      }
      while (step() < kBatch) {
      }
      generated = 0;
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(step());
    ++generated;
  }
}
BENCHMARK(BM_ConstrainedStep)
    ->ArgName("constrained")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace continuo

BENCHMARK_MAIN();
