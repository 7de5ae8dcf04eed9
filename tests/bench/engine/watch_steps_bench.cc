// SPDX-License-Identifier: Apache-2.0
// Measures the cost of WatchSteps for a step: recording it on the engine thread, and sending it to
// one watcher on a thread of gRPC. Decode steps of the scheduler run without any model, unwatched
// and watched in turn, so that both see the same machine; figures are medians, in microseconds a
// step. The goal is at most 1 % of a step, with a model. --benchmark_format=json writes JSON.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/worker/engine/schedule/scheduler.h"
#include "services/worker/server/grpc/watch_steps_call.h"

namespace continuo {
namespace {

constexpr int kVocab = 32000, kPrompt = 128, kSteps = 2048;
constexpr int kStepsInResponse = 4;

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Median(std::vector<double>& values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// Sequences that generate for kSteps, with ids as servers make them.
std::unique_ptr<engine::Scheduler> Start(int batch, engine::EngineMetrics* metrics) {
  engine::EngineOptions options;
  options.num_blocks = batch * (kPrompt + kSteps + 64) / options.block_size;
  options.vocab_size = kVocab;
  options.max_batch_tokens = options.max_prefill_chunk = 8192;
  options.max_running = batch;
  auto scheduler = std::make_unique<engine::Scheduler>(options, metrics);
  for (int i = 0; i < batch; ++i) {
    engine::Request request;
    request.id = i + 1;
    request.label = absl::StrFormat("%032x", i * 2654435761u);
    for (int k = 0; k < kPrompt; ++k) request.prompt.push_back((i * 7919 + k * 31) % kVocab);
    request.max_tokens = kSteps + 32;
    scheduler->Add(std::move(request), [](engine::RequestEvent) {}, absl::ZeroDuration(), {});
  }
  return scheduler;
}

void BM_Watch(benchmark::State& state) {
  const int batch = static_cast<int>(state.range(0));
  engine::EngineMetrics metrics;
  std::vector<double> alone, watched, telling;
  for (auto _ : state) {
    const std::unique_ptr<engine::Scheduler> scheduler = Start(batch, &metrics);
    engine::StepLog log;
    engine::StepLog::Watch watch(&log);
    engine::Moment now;
    for (int i = 0; i < kSteps; ++i) {
      const bool record = i % 2 == 1;
      const auto begin = Clock::now();
      model::StepResult result;
      result.token_ids.assign(scheduler->Schedule(now).num_samples(), 3 + i % 30000);
      result.scores.resize(result.token_ids.size());
      now.elapsed += absl::Microseconds(10);
      const size_t drawn = result.token_ids.size();
      if (!scheduler->Commit(std::move(result), now, absl::Microseconds(10)).ok()) {
        state.SkipWithError("commit failed");
        return;
      }
      if (record) {
        engine::StepRecord step;
        scheduler->Describe(step);
        log.Add(std::move(step));
      }
      scheduler->Deliver();
      if (drawn == static_cast<size_t>(batch) && i >= 100) {
        (record ? watched : alone).push_back(MicrosSince(begin));
      }
      if (i % (2 * kStepsInResponse) != 2 * kStepsInResponse - 1) continue;
      const auto told = Clock::now();
      v1::WatchStepsResponse response;
      server::NextSteps(watch, response);
      benchmark::DoNotOptimize(response.SerializeAsString());
      telling.push_back(MicrosSince(told) / kStepsInResponse);
    }
  }
  const double before = Median(alone), after = Median(watched);
  state.counters["alone_us"] = before;
  state.counters["watched_us"] = after;
  state.counters["recording_us"] = after - before;
  state.counters["telling_us"] = Median(telling);
}
BENCHMARK(BM_Watch)->ArgName("batch")->Arg(1)->Arg(16)->Arg(64)->Arg(256)->Iterations(20)->Unit(
    benchmark::kMillisecond);

}  // namespace
}  // namespace continuo

BENCHMARK_MAIN();
