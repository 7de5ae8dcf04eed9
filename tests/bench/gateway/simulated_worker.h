// SPDX-License-Identifier: Apache-2.0
#pragma once

// A worker with the properties that matter for routing: steps that cost time, a prefix cache of
// whole blocks, a bounded batch. It has no tokens and no threads; the caller has the clock.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

namespace continuo::gateway {

struct TraceRequest {
  double arrival = 0;  // seconds
  int64_t input_tokens = 0, output_tokens = 0;
  std::vector<uint64_t>
      blocks;            // of the prompt, each named by all tokens up to its end; may be empty
  int64_t session = -1;  // the conversation or the client; -1 if unknown
};

struct WorkerModel {
  double step_seconds = 0.008;            // the least duration of a step
  double prefill_token_seconds = 0.0001;  // 10,000 tokens a second
  double decode_seconds = 0.0004;         // for each running sequence
  int64_t step_tokens = 2048;             // most prefill tokens of a step
  int64_t max_running = 128;
  int64_t block_tokens = 512;
  int64_t kv_blocks = 4000;  // of block_tokens: two million tokens
};

class SimulatedWorker {
 public:
  struct Job {
    const TraceRequest* request = nullptr;
    uint64_t id = 0;
    int64_t to_prefill = -1;  // set when it begins
    int64_t generated = 0;
    int64_t hit_tokens = 0;
    int64_t blocks = 0;  // held beside cached ones
    double last_token = 0;
  };

  explicit SimulatedWorker(const WorkerModel& model) : model_(model) {}

  void Add(const TraceRequest* request, uint64_t id) {
    waiting_.push_back({.request = request, .id = id});
    pending_tokens_ += request->input_tokens;
  }
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Makes one step and returns its duration. Calls on_token(job, first) for each token, as of the
  // step's end, and on_end(job) for each job that ends.
  template <typename OnToken, typename OnEnd>
  double Step(double now, OnToken on_token, OnEnd on_end) {
    Begin();
    int64_t budget = model_.step_tokens;
    int64_t decoding = 0;
    for (Job& job : running_) {
      if (job.to_prefill == 0) {
        ++decoding;
        continue;
      }
      const int64_t part = std::min(budget, job.to_prefill);
      job.to_prefill -= part;
      pending_tokens_ -= part;
      budget -= part;
    }
    const double duration =
        model_.step_seconds +
        static_cast<double>(model_.step_tokens - budget) * model_.prefill_token_seconds +
        static_cast<double>(decoding) * model_.decode_seconds;
    const double end = now + duration;
    std::erase_if(running_, [&](Job& job) {
      if (job.to_prefill > 0) return false;
      if (job.generated == 0) Publish(*job.request);
      on_token(job, end);
      job.last_token = end;
      if (++job.generated < job.request->output_tokens) return false;
      used_blocks_ -= job.blocks;
      on_end(job);
      return true;
    });
    return duration;
  }

  // The load as WatchLoad reports it.
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t pending_tokens() const { return pending_tokens_; }
  int64_t used_blocks() const { return used_blocks_; }

 private:
  // Admits the jobs that fit, in the order of arrival.
  void Begin() {
    while (!waiting_.empty() && num_running() < model_.max_running) {
      Job& job = waiting_.front();
      const int64_t tokens = job.request->input_tokens + job.request->output_tokens;
      job.blocks = (tokens + model_.block_tokens - 1) / model_.block_tokens;
      if (used_blocks_ + job.blocks > model_.kv_blocks && !running_.empty()) return;
      int64_t hit = 0;
      for (const uint64_t block : job.request->blocks) {
        const auto at = cached_.find(block);
        if (at == cached_.end()) break;
        order_.splice(order_.begin(), order_, at->second);
        ++hit;
      }
      // The last token is always computed, for its logits.
      job.hit_tokens = std::min(hit * model_.block_tokens, job.request->input_tokens - 1);
      job.to_prefill = job.request->input_tokens - job.hit_tokens;
      pending_tokens_ -= job.hit_tokens;
      used_blocks_ += job.blocks;
      Trim();
      running_.push_back(job);
      waiting_.pop_front();
    }
  }
  void Publish(const TraceRequest& request) {
    for (const uint64_t block : request.blocks) {
      if (cached_.contains(block)) continue;
      order_.push_front(block);
      cached_[block] = order_.begin();
    }
    Trim();
  }
  // Evicts cached blocks, which may only take the room that running requests leave.
  void Trim() {
    const int64_t room = std::max<int64_t>(0, model_.kv_blocks - used_blocks_);
    while (static_cast<int64_t>(order_.size()) > room) {
      cached_.erase(order_.back());
      order_.pop_back();
    }
  }

  const WorkerModel model_;
  std::deque<Job> waiting_;
  std::vector<Job> running_;
  int64_t pending_tokens_ = 0, used_blocks_ = 0;
  std::list<uint64_t> order_;  // cached blocks, last used first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> cached_;
};

}  // namespace continuo::gateway
