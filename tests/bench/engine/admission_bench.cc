// SPDX-License-Identifier: Apache-2.0
// Measures how well KvAdmission uses the KV pool: a closed queue of requests whose answers end by
// themselves, at lengths that the scheduler does not know, on a pool that holds a fraction of them.
// Prints for each workload, as JSON lines: the share of the pool in use while requests wait, the
// number of preemptions, the share of tokens computed again because of them, and the steps taken
// against the least possible (token-steps of KV needed / pool).
#include <cstdio>
#include <map>
#include <memory>
#include <random>

#include "services/worker/engine/schedule/scheduler.h"

namespace continuo {
namespace {

constexpr int kVocab = 100, kStop = 2;

struct Workload {
  const char* name;
  int requests, prompt, max_tokens;
  double mean;  // of an exponential, sampled again above max_tokens; 0: all max_tokens
  int num_blocks;
};

void Run(const Workload& w) {
  engine::EngineOptions options;
  options.num_blocks = w.num_blocks;
  options.vocab_size = kVocab;
  options.max_running = 4096;
  engine::EngineMetrics metrics;
  engine::Scheduler scheduler(options, &metrics);
  std::mt19937 rng(7);
  std::exponential_distribution<double> exponential(w.mean > 0 ? 1 / w.mean : 1);
  std::map<engine::RequestId, int> length, delivered;
  double token_steps = 0;
  int64_t needed_tokens = 0;
  for (int i = 1; i <= w.requests; ++i) {
    int n = w.max_tokens;
    if (w.mean > 0) {
      do {
        n = 1 + static_cast<int>(exponential(rng));
      } while (n > w.max_tokens);
    }
    length[i] = n;
    token_steps += static_cast<double>(n) * w.prompt + 0.5 * n * n;
    needed_tokens += w.prompt + n - 1;
    engine::Request request;
    request.id = i;
    for (int k = 0; k < w.prompt; ++k)
      request.prompt.push_back(static_cast<int32_t>(rng() % 90 + 5));
    request.max_tokens = w.max_tokens;
    request.stop_ids = {kStop};
    request.cache_bypass = true;
    scheduler.Add(std::move(request),
                  [&delivered, i](engine::RequestEvent event) {
                    delivered[i] += static_cast<int>(event.deltas.size());
                  },
                  absl::ZeroDuration(), {});
  }
  engine::Moment now;
  int64_t steps = 0, tokens = 0, crowded = 0;
  double used = 0;
  while (!scheduler.idle()) {
    const model::StepPlan& plan = scheduler.Schedule(now);
    tokens += plan.num_rows();
    ++steps;
    if (scheduler.num_waiting() > 0) {
      ++crowded;
      used += static_cast<double>(scheduler.pool().num_used()) / w.num_blocks;
    }
    model::StepResult result;
    for (int i = 0; i < plan.num_seqs(); ++i) {
      for (int k = plan.sample_begin[i]; k < plan.sample_begin[i + 1]; ++k) {
        // Sequence ids count like requests here.
        const auto id = static_cast<engine::RequestId>(plan.sequence_ids[i]);
        result.token_ids.push_back(delivered[id] + 1 >= length[id] ? kStop : 3);
      }
    }
    result.scores.resize(result.token_ids.size());
    now.elapsed += absl::Milliseconds(10);
    if (!scheduler.Commit(std::move(result), now, absl::Milliseconds(10)).ok()) std::abort();
    scheduler.Deliver();
  }
  std::printf(
      "{\"workload\": \"%s\", \"pool_used\": %.3f, \"preemptions\": %llu, \"requests\": %d, "
      "\"recomputed_rows\": %.3f, \"steps\": %lld, \"least_steps\": %.0f}\n",
      w.name, crowded > 0 ? used / static_cast<double>(crowded) : 0,
      static_cast<unsigned long long>(metrics.preemptions), w.requests,
      static_cast<double>(tokens - needed_tokens) / static_cast<double>(needed_tokens),
      static_cast<long long>(steps), token_steps / (w.num_blocks * 16.0));
}

}  // namespace
}  // namespace continuo

int main() {
  using continuo::Workload;
  for (const Workload& w : {
           Workload{"64 requests, 4x the pool, all to max_tokens", 64, 64, 448, 0, 512},
           Workload{"64 requests, 4x the pool, mean 128 of 448", 64, 64, 448, 128, 192},
           Workload{"512 requests, mean 128 of 1536", 512, 128, 1536, 128, 1024},
           Workload{"512 requests, mean 128 of 16384", 512, 128, 16384, 128, 1100},
           Workload{"512 requests, long prompts", 512, 1024, 512, 128, 2048},
           Workload{"2048 requests, mean 96 of 512, short prompts", 2048, 16, 512, 96, 512},
       }) {
    continuo::Run(w);
  }
}
