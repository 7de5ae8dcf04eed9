// SPDX-License-Identifier: Apache-2.0
// The cost of a pick and of publishing the loads, by the size of the fleet. Half of the workers are
// busy, as reported; leases are kept for 1,000 picks.
#include <benchmark/benchmark.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/gateway/routing/router.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

constexpr size_t kLeases = 1000;

LoadSnapshot Fleet(int size) {
  LoadSnapshot snapshot = {.known_models = {"m"}, .discovery_complete = true};
  std::mt19937_64 random(1);
  for (int i = 0; i < size; ++i) {
    const bool busy = random() % 2 == 0;
    snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
        WorkerLoad{.address = absl::StrCat("10.0.", i / 250, ".", i % 250, ":50051"),
                   .worker = absl::StrCat("worker-", i),
                   .incarnation = "0123456789abcdef",
                   .model = "m",
                   .fingerprint = "0123456789abcdef0123456789abcdef",
                   .tokenizer_fingerprint = "0123456789abcdef0123456789abcdef",
                   .state = WorkerState::kServing,
                   .running_requests = busy ? 60 : 20,
                   .waiting_requests = busy ? 3 : 0,
                   .pending_prompt_tokens = busy ? static_cast<int64_t>(random() % 4000) : 0,
                   .used_kv_blocks = static_cast<int64_t>(random() % 9000),
                   .total_kv_blocks = 10000,
                   .block_size_tokens = 16,
                   .max_running_requests = 64,
                   .report_time = ManualClock().Elapsed()}));
  }
  return snapshot;
}

void Pick(benchmark::State& state, Policy policy) {
  ManualClock clock;
  LoadView view;
  view.Set(Fleet(static_cast<int>(state.range(0))));
  std::mt19937_64 random(1);
  Router router(policy, &view, &clock, random);
  std::deque<Lease> leases;
  RouteKey key = {.model = "m", .prompt_tokens = 500};
  for (auto _ : state) {
    key.prefix_hash = random() % 1000 + 1;
    key.session_hash = random() % 1000 + 1;
    leases.push_back(*router.Pick(key));
    if (leases.size() > kLeases) leases.pop_front();
  }
}

void Publish(benchmark::State& state, bool same_workers) {
  LoadView view;
  const LoadSnapshot a = Fleet(static_cast<int>(state.range(0)));
  LoadSnapshot b = a;
  // A tenth has reported since; or a worker has another fingerprint.
  for (size_t i = 0; i < b.workers.size(); i += same_workers ? 10 : b.workers.size()) {
    auto load = std::make_shared<WorkerLoad>(*b.workers[i]);
    if (!same_workers) load->fingerprint = "another";
    b.workers[i] = std::move(load);
  }
  bool turn = false;
  for (auto _ : state) {
    view.Set(turn ? a : b);
    turn = !turn;
  }
}

BENCHMARK_CAPTURE(Pick, least_loaded, &LeastLoadedOfTwo)->Arg(100)->Arg(1000)->Arg(3000);
BENCHMARK_CAPTURE(Pick, prefix_affinity, &PrefixAffinity)->Arg(100)->Arg(1000)->Arg(3000);
BENCHMARK_CAPTURE(Pick, session_affinity, &SessionAffinity)->Arg(100)->Arg(1000)->Arg(3000);
BENCHMARK_CAPTURE(Publish, counts, true)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(3000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Publish, another_fingerprint, false)
    ->Arg(100)
    ->Arg(1000)
    ->Arg(3000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace continuo::gateway
