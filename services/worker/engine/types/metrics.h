// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace continuo::engine {

// Counts observations at or below ascending bounds, and keeps their sum. One thread writes, any
// thread reads; a reader may see the parts of an observation at slightly different times.
template <size_t kNumBounds>
class Histogram {
 public:
  explicit constexpr Histogram(const std::array<double, kNumBounds>& bounds) : bounds_(bounds) {}

  void Observe(double value, uint64_t times = 1) {
    size_t i = 0;
    while (i < kNumBounds && value > bounds_[i]) ++i;
    counts_[i].fetch_add(times, std::memory_order_relaxed);
    sum_.store(sum_.load(std::memory_order_relaxed) + value * static_cast<double>(times),
               std::memory_order_relaxed);
  }
  std::span<const double> bounds() const { return bounds_; }
  // `i` is in [0, kNumBounds]; the last one counts observations above every bound.
  uint64_t count(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::array<double, kNumBounds> bounds_;
  std::array<std::atomic<uint64_t>, kNumBounds + 1> counts_ = {};
  std::atomic<double> sum_ = 0;
};

// Metrics of the engine. The engine thread writes, any thread reads. A member `name` is exported as
// continuo_<name>. Histograms have the bounds that vLLM's dashboards expect.
struct EngineMetrics {
  std::atomic<int64_t> running_requests = 0, waiting_requests = 0, waiting_prompt_tokens = 0;
  std::atomic<int64_t> kv_blocks_used = 0, kv_blocks_cached = 0, kv_blocks_total = 0;
  std::atomic<int64_t> kv_blocks_unaccounted = 0;  // 0 at every step
  std::atomic<int64_t> state_slots_used = 0, state_slots_kept = 0, state_slots_total = 0;
  std::atomic<uint64_t> prompt_tokens = 0, generated_tokens = 0, preemptions = 0;
  std::atomic<uint64_t> draft_tokens = 0, accepted_draft_tokens = 0;
  std::atomic<uint64_t> prefix_cache_queried_tokens = 0, prefix_cache_hit_tokens = 0;
  std::atomic<uint64_t> constrained_samples = 0;  // those after drafts, too
  // The sum of StepCost::TokenTime over all steps, in seconds.
  std::atomic<double> token_seconds = 0;

  Histogram<12> step_seconds{{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}};
  Histogram<12> step_rows{{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}};
  // Durations of filling the masks of a step that has any.
  Histogram<12> mask_seconds{
      {.00001, .00002, .00005, .0001, .0002, .0005, .001, .002, .005, .01, .02, .05}};
  Histogram<20> queue_seconds{
      {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920}};
  Histogram<22> time_to_first_token_seconds{{.001, .005, .01, .02, .04, .06, .08, .1,
                                             .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                             20,   40,   80,  160, 640, 2560}};
  Histogram<18> inter_token_seconds{
      {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40}};
  Histogram<20> request_seconds{
      {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920}};
};

}  // namespace continuo::engine
