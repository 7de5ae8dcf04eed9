// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace continuo::kernels::host {

// A fixed set of threads that share loops with the thread that calls Run. Of T threads, thread t
// takes the pieces t, t + T, … in turn, then those that others have left: so a thread knows what it
// most likely does next, and no two of them write the same memory for every piece. Pieces are
// claimed one by one, so a thread that lost its core to a neighbour costs its own piece and no
// more; a thread that did not wake up in time is not waited for. Which thread ran a piece must not
// matter to the result. Run allocates nothing.
//
// Run may be called by one thread at a time, and not from inside a body.
class ThreadPool {
 public:
  // num_threads ≥ 1, the caller's included. Each of the others calls `begin` once, before all else;
  // what it refers to has to outlive the pool.
  explicit ThreadPool(int num_threads, std::function<void()> begin = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(shares_.size()); }

  // Runs body(piece, thread) for every piece in [0, n), thread in [0, num_threads()), and returns
  // when all are done. Every thread has the floating-point state of FloatState.
  void Run(int n, absl::FunctionRef<void(int piece, int thread)> body);

 private:
  // Lives on Run's stack; only those who have claimed a piece of it may touch it.
  struct Job {
    absl::FunctionRef<void(int, int)> body;
    uint32_t num_pieces;
    std::atomic<uint32_t> num_done{0};
  };

  // The high half counts jobs, the low half a thread's pieces of the current one that nobody has
  // claimed. One word, so that a claim cannot succeed for a job that is over.
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};
  };

  void Work(int thread);
  // Claims and runs pieces until none is left.
  void TakePieces(int thread);

  // How many of n pieces thread t takes in turn.
  uint32_t PiecesInTurn(uint32_t n, uint32_t t) const {
    const auto num_shares = static_cast<uint32_t>(shares_.size());
    return t < n ? (n - t - 1) / num_shares + 1 : 0;
  }

  const std::function<void()> begin_;
  std::vector<Share> shares_;  // one per thread
  uint32_t num_jobs_ = 0;      // the caller's
  std::atomic<Job*> job_{nullptr};
  std::atomic<uint32_t> wake_{0};  // changes with every job; what idle threads wait on
  std::atomic<bool> stop_{false};
  bool running_ = false;  // a Run is under way; the caller's
  std::vector<std::thread> threads_;
};

}  // namespace continuo::kernels::host
